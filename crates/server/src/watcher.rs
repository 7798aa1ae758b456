//! The thread that looks at the run, so that nobody else has to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::LiveRun;
use crate::gallery::{self, Pictures};
use crate::status::{LiveStatus, StatusMaker};

/// How often the thread wakes.
const TICK: Duration = Duration::from_millis(50);
/// The state of the run is sent this often, and with new images.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Images are prepared at most this often.
const IMAGE_INTERVAL: Duration = Duration::from_millis(100);
/// After preparing images the thread rests this many times as long, so that it takes a fifth of one core at most.
const REST_FACTOR: u32 = 4;

/// The state of the run, and the same as JSON.
pub(crate) struct Shown {
    /// The state.
    pub(crate) status: LiveStatus,
    /// Its JSON.
    pub(crate) json: String,
}

/// What the thread has seen last; cheap to clone.
#[derive(Clone)]
pub(crate) struct Seen {
    /// The state of the run.
    pub(crate) status: watch::Receiver<Arc<Shown>>,
    /// The images.
    pub(crate) pictures: watch::Receiver<Arc<Pictures>>,
}

/// Looks at a run and shows it to the viewers.
pub(crate) struct Watcher {
    run: Arc<dyn LiveRun>,
    viewers: Arc<AtomicUsize>,
    maker: StatusMaker,
    status: watch::Sender<Arc<Shown>>,
    pictures: watch::Sender<Arc<Pictures>>,
}

impl Watcher {
    /// Takes a first look.
    pub(crate) fn new(run: Arc<dyn LiveRun>, viewers: Arc<AtomicUsize>) -> (Self, Seen) {
        let mut maker = StatusMaker::default();
        let (status, status_seen) = watch::channel(look(&mut maker, &*run, &viewers));
        let (pictures, pictures_seen) = watch::channel(Arc::default());
        let seen = Seen { status: status_seen, pictures: pictures_seen };
        (Self { run, viewers, maker, status, pictures }, seen)
    }

    /// Looks again and again, until the other end of `stop` is dropped, and then a last time.
    pub(crate) fn watch(mut self, stop: &Receiver<()>) {
        let mut pictures = Pictures::new();
        let mut next_status = Instant::now();
        let mut next_images = Instant::now();
        while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            let now = Instant::now();
            let watched = self.viewers.load(Ordering::Relaxed) > 0;
            let changed = watched && now >= next_images && gallery::refresh(&mut pictures, &*self.run);
            if now >= next_images {
                next_images = now + IMAGE_INTERVAL.max(now.elapsed() * (REST_FACTOR + 1));
            }
            // Before the images, so that the state that a viewer gets first names their places.
            if changed || now >= next_status {
                next_status = now + STATUS_INTERVAL;
                self.status.send_replace(look(&mut self.maker, &*self.run, &self.viewers));
            }
            if changed {
                self.pictures.send_replace(Arc::new(pictures.clone()));
            }
        }
        self.status.send_replace(look(&mut self.maker, &*self.run, &self.viewers));
    }
}

fn look(maker: &mut StatusMaker, run: &dyn LiveRun, viewers: &AtomicUsize) -> Arc<Shown> {
    let status = maker.make(&run.status(), &run.views(), viewers.load(Ordering::Relaxed));
    let json = serde_json::to_string(&status).unwrap_or_else(|error| {
        tracing::error!(%error, "the state of the run cannot be written as JSON");
        "{}".to_owned()
    });
    Arc::new(Shown { status, json })
}
