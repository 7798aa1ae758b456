use super::*;
use beamstream_buffer::Pool;
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role, SeriesHeader, SeriesId, SeriesSummary};
use beamstream_node::StopController;

const FRAME: Format = Format::frame(ElementType::U8, 10, 10);

fn begin(number: u64) -> Event {
    Event::Begin(Arc::new(SeriesHeader::frames(SeriesId { number, ordinal: number }, FRAME)))
}

fn end() -> Event {
    Event::End(Arc::new(SeriesSummary::default()))
}

fn block(pool: &Pool, number: u64) -> Event {
    Event::Block(pool.lease(FRAME).unwrap().freeze(BlockMeta::new(FrameId::new(number), Role::Projection)))
}

fn names(receiver: &EdgeReceiver) -> Vec<String> {
    std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|event| match event {
            Event::Begin(header) => format!("begin {}", header.id),
            Event::Block(block) => format!("block {}", block.meta.frame),
            Event::End(_) => "end".to_owned(),
        })
        .collect()
}

#[test]
fn a_full_edge_makes_the_sender_wait_for_bytes_and_blocks() {
    let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
    let (_controller, stop) = StopController::new();
    for capacity in [Capacity { blocks: 2, bytes: 10_000 }, Capacity { blocks: 10, bytes: 250 }] {
        let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                for number in 0..50 {
                    sender.send(block(&pool, number), &stop).unwrap();
                }
                sender
            });
            let mut seen = 0;
            while seen < 50 {
                if let Ok(Event::Block(block)) = receiver.try_recv() {
                    assert_eq!(block.meta.frame, FrameId::new(seen));
                    seen += 1;
                }
                std::thread::yield_now();
            }
            assert!(sending.join().unwrap().stats.peak_bytes() <= 300);
        });
    }
}

#[test]
fn a_block_larger_than_the_edge_passes_alone() {
    let pool = Pool::host("p", 2, FRAME.bytes()).unwrap();
    let (_controller, stop) = StopController::new();
    let (mut sender, receiver) = edge("a -> b", Policy::Block, Capacity { blocks: 4, bytes: 1 });
    assert_eq!(sender.send(block(&pool, 0), &stop), Ok(0));
    assert_eq!(names(&receiver), ["block 0"]);
}

#[test]
fn a_receiver_that_goes_because_of_a_halt_frees_a_waiting_sender() {
    let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
    for capacity in [Capacity { blocks: 1, bytes: 10_000 }, Capacity { blocks: 10, bytes: 1 }] {
        let (controller, stop) = StopController::new();
        let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
        sender.send(block(&pool, 0), &stop).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send(block(&pool, 1), &stop));
            controller.halt();
            drop(receiver);
            assert_eq!(waiting.join().unwrap(), Err(SendError::Halted));
        });
    }
}

#[test]
fn a_receiver_that_goes_frees_a_waiting_sender() {
    let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
    for capacity in [Capacity { blocks: 1, bytes: 10_000 }, Capacity { blocks: 10, bytes: 1 }] {
        let (_controller, stop) = StopController::new();
        let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
        sender.send(block(&pool, 0), &stop).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send(block(&pool, 1), &stop));
            drop(receiver);
            assert_eq!(waiting.join().unwrap(), Err(SendError::Closed));
        });
    }
}

#[test]
fn the_newest_blocks_stay() {
    let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
    let (_controller, stop) = StopController::new();
    let (mut sender, receiver) = edge("a -> b", Policy::Latest, Capacity { blocks: 2, bytes: 0 });
    sender.send(begin(1), &stop).unwrap();
    for number in 0..5 {
        sender.send(block(&pool, number), &stop).unwrap();
    }
    sender.send(end(), &stop).unwrap();
    assert_eq!(sender.stats.dropped(), 3);
    drop(sender);
    assert_eq!(names(&receiver), ["begin 1", "block 3", "block 4", "end"]);
    assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
}

#[test]
fn a_drained_edge_lets_its_receiver_sleep() {
    let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
    let (_controller, stop) = StopController::new();
    for policy in [Policy::Latest, Policy::Block] {
        let (mut sender, receiver) = edge("a -> b", policy, Capacity { blocks: 4, bytes: 10_000 });
        sender.send(begin(1), &stop).unwrap();
        sender.send(block(&pool, 0), &stop).unwrap();
        assert_eq!(names(&receiver), ["begin 1", "block 0"]);
        let mut select = Select::new();
        receiver.select(&mut select);
        assert!(select.ready_timeout(Duration::ZERO).is_err(), "{policy:?}: ready without an event");
        sender.send(end(), &stop).unwrap();
        assert!(select.ready_timeout(Duration::ZERO).is_ok(), "{policy:?}: an event is not seen");
    }
}

#[test]
fn an_end_stays_to_be_seen() {
    for policy in [Policy::Latest, Policy::Block] {
        let (sender, receiver) = edge("a -> b", policy, Capacity { blocks: 4, bytes: 10_000 });
        drop(sender);
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
        let mut select = Select::new();
        receiver.select(&mut select);
        assert!(select.ready_timeout(Duration::ZERO).is_ok(), "{policy:?}: a receiver would sleep for ever");
    }
}

#[test]
fn a_slow_viewer_skips_whole_series_and_sees_well_formed_ones() {
    let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
    let (_controller, stop) = StopController::new();
    let (mut sender, receiver) = edge("a -> b", Policy::Latest, Capacity { blocks: 4, bytes: 0 });
    sender.send(begin(1), &stop).unwrap();
    assert!(matches!(receiver.try_recv(), Ok(Event::Begin(_))));
    for series in 2..5 {
        sender.send(block(&pool, series), &stop).unwrap();
        sender.send(end(), &stop).unwrap();
        sender.send(begin(series), &stop).unwrap();
    }
    assert_eq!(names(&receiver), ["end", "begin 4"]);
    assert_eq!(pool.stats().free, 8);
}
