use super::*;
use beamstream_core::{FrameId, Role};

const FRAME: Format = Format::frame(ElementType::U16, 3, 5);

fn meta(number: u64) -> BlockMeta {
    BlockMeta::new(FrameId::new(number), Role::Projection)
}

fn block(pool: &Pool, value: u16) -> Block {
    let mut lease = pool.lease(FRAME).unwrap();
    lease.elements_mut::<u16>().unwrap().fill(value);
    lease.freeze(meta(u64::from(value)))
}

#[test]
fn a_block_is_shared_and_returns_with_its_last_drop() {
    let pool = Pool::host("p", 2, FRAME.bytes()).unwrap();
    let one = block(&pool, 7);
    let two = one.clone();
    drop(one);
    assert_eq!(pool.stats().free, 1);
    assert!(two.elements::<u16>().unwrap().iter().all(|v| *v == 7));
    drop(two);
    assert_eq!(pool.stats().free, 2);
}

#[test]
fn buffers_do_not_overlap() {
    let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
    let blocks: Vec<Block> = (0..4).map(|value| block(&pool, value)).collect();
    for (value, block) in blocks.iter().enumerate() {
        assert!(block.elements::<u16>().unwrap().iter().all(|v| usize::from(*v) == value));
    }
    assert!(pool.try_lease(FRAME).unwrap().is_none());
}

#[test]
fn bytes_share_the_memory_of_the_block() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let block = block(&pool, 9);
    let address = block.bytes().as_ptr();
    let bytes = block.into_bytes();
    let part = bytes.slice(2..6);
    drop(bytes);
    assert_eq!(part.as_ptr(), address.wrapping_add(2));
    assert_eq!(pool.stats().free, 0);
    drop(part);
    assert_eq!(pool.stats().free, 1);
}

#[test]
fn only_an_unshared_block_is_written_in_place() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let one = block(&pool, 1);
    let two = one.clone();
    let one = one.try_into_mut().unwrap_err();
    drop(two);
    let mut lease = one.try_into_mut().unwrap();
    lease.elements_mut::<u16>().unwrap()[0] = 2;
    assert_eq!(lease.freeze(meta(0)).elements::<u16>().unwrap()[..2], [2, 1]);
}

#[test]
fn wrong_types_and_sizes_are_refused_by_name() {
    let pool = Pool::host("frames", 1, FRAME.bytes()).unwrap();
    let error = pool.lease(Format::frame(ElementType::F32, 3, 5)).unwrap_err().to_string();
    assert!(error.contains("60") && error.contains("30") && error.contains("frames"), "{error}");
    let error = block(&pool, 1).elements::<f32>().unwrap_err();
    assert_eq!((error.expected, error.found), (ElementType::F32, ElementType::U16));
}

#[test]
fn a_closed_pool_gives_nothing_but_keeps_what_is_out() {
    let pool = Pool::host("p", 2, FRAME.bytes()).unwrap();
    let block = block(&pool, 3);
    pool.close();
    assert!(matches!(pool.lease(FRAME), Err(PoolError::Closed { .. })));
    assert_eq!(block.elements::<u16>().unwrap()[0], 3);
}

/// A fence that is done when it is told.
#[derive(Debug, Default)]
struct Told(std::sync::Mutex<bool>, std::sync::Condvar);

impl Told {
    fn tell(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

impl Fence for Told {
    fn is_done(&self) -> bool {
        *self.0.lock().unwrap()
    }
    fn wait(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |done| !*done).unwrap());
    }
}

#[test]
fn the_host_waits_for_a_reader_when_it_writes_not_when_it_leases() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let reader = Arc::new(Told::default());
    let first = block(&pool, 1);
    first.read_by(Some(reader.clone()));
    drop(first);
    let mut lease = pool.lease(FRAME).unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| lease.bytes_mut().fill(0));
        assert!(!writing.is_finished() || reader.is_done());
        reader.tell();
    });
    assert!(lease.earlier_readers().is_empty());
}

#[test]
fn a_device_writer_gets_the_fences_of_the_readers_and_of_the_writer() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let fences = [Arc::new(Told::default()), Arc::new(Told::default())];
    let mut lease = pool.lease(FRAME).unwrap();
    lease.written_by(Some(fences[0].clone()));
    lease.freeze(meta(0)).read_by(Some(fences[1].clone()));
    assert_eq!(pool.lease(FRAME).unwrap().earlier_readers().len(), 2);
    for fence in fences {
        fence.tell();
    }
}

#[test]
fn a_buffer_is_kept_from_others_until_a_device_has_written_it_even_if_it_is_given_up() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let fence = Arc::new(Told::default());
    let mut lease = pool.lease(FRAME).unwrap();
    lease.written_by(Some(fence.clone()));
    drop(lease);
    assert!(pool.lease(FRAME).unwrap().is_read());
    fence.tell();
    assert!(!pool.lease(FRAME).unwrap().is_read());
}

#[test]
fn memory_stays_until_the_devices_are_done() {
    let pool = Pool::host("p", 1, FRAME.bytes()).unwrap();
    let fence = Arc::new(Told::default());
    block(&pool, 1).read_by(Some(fence.clone()));
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(pool));
        assert!(!dropping.is_finished() || fence.is_done());
        fence.tell();
    });
    assert_eq!(Arc::strong_count(&fence), 1);
}

#[test]
fn large_buffers_begin_on_a_page() {
    let format = Format::frame(ElementType::U8, 300, 301);
    let pool = Pool::host("p", 3, format.bytes()).unwrap();
    let leases: Vec<LeaseMut> = (0..3).map(|_| pool.lease(format).unwrap()).collect();
    assert!(leases.iter().all(|lease| (lease.base().as_ptr() as usize).is_multiple_of(PAGE_BYTES)));
}

#[test]
fn many_threads_keep_the_count() {
    let pool = Pool::host("p", 3, FRAME.bytes()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u16 {
            let pool = &pool;
            scope.spawn(move || {
                for _ in 0..200 {
                    let one = block(pool, thread);
                    let two = one.clone();
                    assert!(two.elements::<u16>().unwrap().iter().all(|v| *v == thread));
                }
            });
        }
    });
    assert_eq!(pool.stats().free, 3);
}
