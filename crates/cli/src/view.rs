//! The page that shows a run.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::Duration;

use beamstream::{Report, RunHandle, SetFailure, Status, View};
use beamstream_server::{LiveRun, Server, ServerError};
use serde_json::Value;

use crate::failure::Failure;

/// Where the page is if nobody says otherwise.
const DEFAULT_PORT: u16 = 8088;
/// Ports that are tried, from the default on.
const PORTS_TRIED: u16 = 20;

/// Whether and where a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Not at all.
    Nowhere,
    /// At the usual port of this machine, or the next free one.
    Anywhere,
    /// There.
    At(SocketAddr),
}

impl Show {
    /// A page if there is something to see, where the user wants it.
    pub(crate) fn when(something_to_see: bool, wanted: Option<SocketAddr>) -> Self {
        match (something_to_see, wanted) {
            (_, Some(address)) => Self::At(address),
            (true, None) => Self::Anywhere,
            (false, None) => Self::Nowhere,
        }
    }
}

/// A run that the page looks at and steers while the program waits for its end: all of them only read, but for a
/// moment at each look for the end.
#[derive(Clone)]
pub(crate) struct SharedRun(Arc<RwLock<RunHandle>>);

impl SharedRun {
    pub(crate) fn new(handle: RunHandle) -> Self {
        Self(Arc::new(RwLock::new(handle)))
    }

    /// The report, once the run has ended; asked for while a parameter is being changed it is not there yet.
    pub(crate) fn report(&self) -> Option<Report> {
        match self.0.try_write() {
            Ok(mut handle) => handle.wait_timeout(Duration::ZERO),
            Err(TryLockError::Poisoned(handle)) => handle.into_inner().wait_timeout(Duration::ZERO),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn handle(&self) -> RwLockReadGuard<'_, RunHandle> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveRun for SharedRun {
    fn status(&self) -> Status {
        self.handle().status()
    }

    fn views(&self) -> BTreeMap<String, View> {
        self.handle().board().snapshot()
    }

    fn set(&self, node: &str, key: &str, value: Value) -> Result<u32, SetFailure> {
        self.handle().set(node, key, value)
    }
}

/// A page that is up; it goes down when this is dropped.
pub(crate) struct Page(Server);

impl Page {
    /// Puts the page up.
    ///
    /// # Errors
    /// [`Failure`] if the address cannot be used.
    pub(crate) fn open(show: Show, run: &SharedRun) -> Result<Option<Self>, Failure> {
        let start = |address| Server::start(address, Arc::new(run.clone()));
        let server = match show {
            Show::Nowhere => return Ok(None),
            Show::At(address) => start(address),
            Show::Anywhere => first_free(start),
        };
        server.map(|server| Some(Self(server))).map_err(|error| Failure::usage(text(&error)))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// The page at the usual port, at one of the next if that is taken, else anywhere.
fn first_free(start: impl Fn(SocketAddr) -> Result<Server, ServerError>) -> Result<Server, ServerError> {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for port in DEFAULT_PORT..DEFAULT_PORT + PORTS_TRIED {
        match start(address(port)) {
            Err(ServerError::AddressTaken(_)) => {}
            outcome => return outcome,
        }
    }
    start(address(0))
}

/// The text of an error with that of its cause.
fn text(error: &ServerError) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
