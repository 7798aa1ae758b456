//! The server: its threads, its address, its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, atomic::AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header;
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::{App, HttpServer, web};
use tokio::sync::Semaphore;

use crate::exporter::Exporter;
use crate::http::{self, Site};
use crate::watcher::Watcher;
use crate::{LiveRun, guard};

/// Connections at most at a time, viewers included.
const MAX_CONNECTIONS: usize = 256;
/// How long a client may take to send the head of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Viewers that do not take the last message within this time do not get it. Unit: seconds.
const GOODBYE_SECS: u64 = 1;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address can be reached from elsewhere.
    #[error(
        "{0} can be reached from other machines, which needs a token and TLS, and neither is part of this version: \
         expected a loopback address such as 127.0.0.1:8080 (from elsewhere: ssh -L 8080:127.0.0.1:8080 HOST)"
    )]
    NotLoopback(SocketAddr),
    /// Something listens there already.
    #[error("{0} is taken by another program")]
    AddressTaken(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread for the server.
    #[error("the server's threads cannot be started")]
    Threads(#[source] io::Error),
}

/// A server that runs on threads of its own; dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// Dropped to end the watcher.
    watching: Option<SyncSender<()>>,
    watcher: Option<JoinHandle<()>>,
    handle: Option<ServerHandle>,
    http: Option<JoinHandle<()>>,
}

impl Server {
    /// Shows a run at a loopback address; port 0 takes a free one. The process' metrics are collected from now on.
    ///
    /// # Errors
    /// [`ServerError`]; with [`ServerError::AddressTaken`] another port may do.
    pub fn start(address: SocketAddr, run: Arc<dyn LiveRun>) -> Result<Self, ServerError> {
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServerError::AddressTaken(address),
            _ => ServerError::Listen { address, source },
        })?;
        let address = listener.local_addr().map_err(|source| ServerError::Listen { address, source })?;

        let exporter = Exporter::global();
        http::describe_metrics();
        let viewers = Arc::new(AtomicUsize::new(0));
        let (watcher, seen) = Watcher::new(run.clone(), viewers.clone());
        let site =
            web::Data::new(Site { run, seen, viewers, changing: Arc::new(Semaphore::new(1)), exporter });

        // From here on a failure drops the server, which stops what has started.
        let mut server = Self { address, watching: None, watcher: None, handle: None, http: None };
        let (watching, stop) = sync_channel(0);
        server.watching = Some(watching);
        server.watcher = Some(spawn("view-watch", move || watcher.watch(&stop))?);
        let (handle_sender, handle) = sync_channel(1);
        server.http = Some(spawn("view-http", move || serve(listener, site, &handle_sender))?);
        let gone = |_closed| ServerError::Threads(io::Error::other("the server ended at once"));
        server.handle = Some(handle.recv().map_err(gone)?);
        tracing::info!(%address, "the view can be opened");
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the viewers how things stand, ends all connections and waits until the server's threads have ended.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The watcher goes first: its last look is what the viewers keep on their screens.
        drop(self.watching.take());
        join(self.watcher.take());
        if let Some(handle) = self.handle.take() {
            // The command is sent by the call; the future only waits for what the join waits for.
            drop(handle.stop(true));
        }
        join(self.http.take());
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServerError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(ServerError::Threads)
}

fn join(thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("a thread of the view panicked");
    }
}

/// Runs the server until it is stopped by the handle that it sends.
fn serve(listener: TcpListener, site: web::Data<Site>, handle: &SyncSender<ServerHandle>) {
    let served = actix_web::rt::System::new().block_on(async move {
        let http = listen(listener, site)?;
        // There is room for the one handle, and the receiver waits for it.
        drop(handle.try_send(http.handle()));
        http.await
    });
    if let Err(error) = served {
        tracing::error!(%error, "the view's server failed");
    }
}

fn listen(listener: TcpListener, site: web::Data<Site>) -> io::Result<actix_web::dev::Server> {
    let app = move || {
        let headers = DefaultHeaders::new()
            .add((header::CONTENT_SECURITY_POLICY, http::PAGE_POLICY))
            .add((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .add((header::REFERRER_POLICY, "no-referrer"))
            .add((header::CACHE_CONTROL, "no-store"));
        App::new()
            .app_data(site.clone())
            .configure(http::routes)
            .wrap(from_fn(guard::same_machine))
            .wrap(headers)
    };
    let http = HttpServer::new(app)
        .workers(1)
        // A change of a parameter blocks; there is one at a time.
        .worker_max_blocking_threads(1)
        .max_connections(MAX_CONNECTIONS)
        .client_request_timeout(REQUEST_TIMEOUT)
        .shutdown_timeout(GOODBYE_SECS)
        // Ctrl-C is the affair of the program around.
        .disable_signals()
        .listen(listener)?;
    Ok(http.run())
}
