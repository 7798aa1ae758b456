use super::*;
use beamstream_buffer::Pool;
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role, SeriesHeader, SeriesId, SeriesSummary};
use beamstream_node::StopController;

const FRAME: Format = Format::frame(ElementType::U8, 10, 10);

/// An edge that spills to the folder for temporary files, if it spills.
fn open(policy: Policy, capacity: Capacity) -> (EdgeSender, EdgeReceiver) {
    let settings = SpillSettings { folder: std::env::temp_dir(), most_bytes: None };
    edge("a -> b", policy, capacity, Some(SpillPlace { settings: &settings, journal: Journal::new("a") }))
}

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
        let (mut sender, receiver) = open(Policy::Block, capacity);
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
    let (mut sender, receiver) = open(Policy::Block, Capacity { blocks: 4, bytes: 1 });
    assert_eq!(sender.send(block(&pool, 0), &stop), Ok(0));
    assert_eq!(names(&receiver), ["block 0"]);
}

#[test]
fn a_receiver_that_goes_because_of_a_halt_frees_a_waiting_sender() {
    let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
    for capacity in [Capacity { blocks: 1, bytes: 10_000 }, Capacity { blocks: 10, bytes: 1 }] {
        let (controller, stop) = StopController::new();
        let (mut sender, receiver) = open(Policy::Block, capacity);
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
        let (mut sender, receiver) = open(Policy::Block, capacity);
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
    let (mut sender, receiver) = open(Policy::Latest, Capacity { blocks: 2, bytes: 0 });
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
    for policy in [Policy::Latest, Policy::Block, Policy::Spill] {
        let (mut sender, receiver) = open(policy, Capacity { blocks: 4, bytes: 10_000 });
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
    for policy in [Policy::Latest, Policy::Block, Policy::Spill] {
        let (sender, receiver) = open(policy, Capacity { blocks: 4, bytes: 10_000 });
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
    let (mut sender, receiver) = open(Policy::Latest, Capacity { blocks: 4, bytes: 0 });
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

/// An edge that spills, with buffers of a pool of `slots`.
fn spilling(slots: usize, most_bytes: Option<u64>) -> (EdgeSender, EdgeReceiver, Pool, Journal) {
    let settings = SpillSettings { folder: std::env::temp_dir(), most_bytes };
    let journal = Journal::new("a");
    let spill = SpillPlace { settings: &settings, journal: journal.clone() };
    let (sender, receiver) =
        edge("a -> b", Policy::Spill, Capacity { blocks: 2, bytes: 10_000 }, Some(spill));
    (sender, receiver, Pool::host("p", slots, FRAME.bytes()).unwrap(), journal)
}

#[test]
fn what_is_spilled_comes_back_in_order_and_bit_by_bit() {
    let (mut sender, receiver, pool, journal) = spilling(4, None);
    let (_controller, stop) = StopController::new();
    let mut expected = Vec::new();
    for series in 0..3 {
        sender.send(begin(series), &stop).unwrap();
        sender.set_pool(&pool);
        for number in 0..50 {
            let mut lease = pool.lease(FRAME).unwrap();
            lease.bytes_mut().fill((series * 50 + number) as u8);
            let block = lease.freeze(BlockMeta::new(FrameId::new(number), Role::Projection));
            assert_eq!(sender.send(Event::Block(block), &stop), Ok(0), "the sender waited");
        }
        sender.send(end(), &stop).unwrap();
        expected.push(format!("begin {series}"));
        expected.extend((0..50).map(|number| format!("block {number}")));
        expected.push("end".to_owned());
    }
    let (mut seen, mut pixel) = (Vec::new(), 0_u8);
    while let Ok(event) = receiver.try_recv() {
        seen.push(match event {
            Event::Begin(header) => format!("begin {}", header.id),
            Event::End(_) => "end".to_owned(),
            Event::Block(block) => {
                assert!(block.bytes().iter().all(|found| *found == pixel));
                pixel = pixel.wrapping_add(1);
                format!("block {}", block.meta.frame)
            }
        });
    }
    assert_eq!(seen, expected);
    assert_eq!(sender.stats.spilled(), 149, "one block of the first series found room in memory");
    let spilled: Vec<u64> = journal.all_series().iter().map(|record| record.spilled).collect();
    assert_eq!(spilled, [49, 50, 50]);
    assert_eq!(pool.stats().free, 4);
}

#[test]
fn sender_and_receiver_of_a_spill_keep_the_order_at_any_pace() {
    let (mut sender, receiver, pool, _journal) = spilling(6, None);
    let (_controller, stop) = StopController::new();
    let (pool, stop) = (&pool, &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.send(begin(0), stop).unwrap();
            sender.set_pool(pool);
            for number in 0..20_000 {
                sender.send(block(pool, number), stop).unwrap();
            }
        });
        let mut next = 0;
        loop {
            match receiver.try_recv() {
                Ok(Event::Block(block)) => {
                    assert_eq!(block.meta.frame, FrameId::new(next));
                    next += 1;
                }
                Ok(_) => {}
                Err(TryRecvError::Empty) => {
                    let mut select = Select::new();
                    receiver.select(&mut select);
                    assert!(
                        select.ready_timeout(Duration::from_mins(1)).is_ok(),
                        "nobody wakes the receiver"
                    );
                }
                Err(TryRecvError::Disconnected) => break,
            }
        }
        assert_eq!(next, 20_000);
    });
}

#[test]
fn a_full_spill_makes_the_sender_wait_and_is_told() {
    let (mut sender, receiver, pool, journal) = spilling(6, Some(1_000));
    let (_controller, stop) = StopController::new();
    let (pool, stop) = (&pool, &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.send(begin(0), stop).unwrap();
            sender.set_pool(pool);
            (0..50).for_each(|number| assert!(sender.send(block(pool, number), stop).is_ok()));
        });
        while journal.warnings().is_empty() {
            std::thread::yield_now();
        }
        let mut blocks = 0;
        loop {
            match receiver.try_recv() {
                Ok(Event::Block(_)) => blocks += 1,
                Err(TryRecvError::Disconnected) => break,
                Ok(_) | Err(TryRecvError::Empty) => std::thread::yield_now(),
            }
        }
        assert_eq!(blocks, 50);
    });
    assert!(journal.warnings()[0].message.contains("no space"), "{:?}", journal.warnings());
}
