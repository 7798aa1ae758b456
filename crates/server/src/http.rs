//! The HTTP interface: page, state, parameters, metrics, and the door to the WebSocket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::{Error, HttpRequest, HttpResponse, error, web};
use beamstream_engine::SetFailure;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::LiveRun;
use crate::client::Client;
use crate::exporter::Exporter;
use crate::watcher::Seen;

/// Viewers at most at a time.
pub(crate) const MAX_VIEWERS: usize = 64;
/// Longest body of a request. Unit: bytes.
const MAX_BODY_BYTES: usize = 4096;

/// The page, one file without a build step.
const PAGE: &str = include_str!("page.html");
/// What the page may load: itself, and nothing from elsewhere.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
     img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
pub(crate) struct Site {
    /// The run that is shown.
    pub(crate) run: Arc<dyn LiveRun>,
    /// What was last seen of it.
    pub(crate) seen: Seen,
    /// How many watch.
    pub(crate) viewers: Arc<AtomicUsize>,
    /// Parameters are changed one at a time.
    pub(crate) changing: Arc<Semaphore>,
    /// All metrics of the process.
    pub(crate) exporter: &'static Exporter,
}

/// All routes.
pub(crate) fn routes(config: &mut web::ServiceConfig) {
    let unreadable = |error: error::JsonPayloadError, _request: &HttpRequest| {
        let text = format!("the body is no JSON object of one parameter: {error}");
        error::InternalError::from_response(error, refusal(StatusCode::BAD_REQUEST, &text)).into()
    };
    config
        .app_data(web::JsonConfig::default().limit(MAX_BODY_BYTES).error_handler(unreadable))
        .route("/", web::get().to(page))
        .route("/metrics", web::get().to(metrics_text))
        .route("/api/v1/status", web::get().to(status))
        .route("/api/v1/live", web::get().to(live))
        .route("/api/v1/nodes/{node}/parameters", web::post().to(set_parameter))
        .default_service(web::to(async || {
            refusal(StatusCode::NOT_FOUND, "there is nothing at this address")
        }));
}

async fn page() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::html()).body(PAGE)
}

async fn status(site: web::Data<Site>) -> HttpResponse {
    let shown = site.seen.status.borrow().clone();
    HttpResponse::Ok().content_type(ContentType::json()).body(shown.json.clone())
}

async fn metrics_text(site: web::Data<Site>) -> HttpResponse {
    let shown = site.seen.status.borrow().clone();
    let totals = shown.status.totals;
    metrics::counter!("beamstream_frames_received_total").absolute(totals.received);
    metrics::counter!("beamstream_frames_processed_total").absolute(totals.processed);
    // What seems lost may still come: this figure may fall.
    metrics::gauge!("beamstream_frames_lost").set(totals.lost as f64);
    metrics::gauge!("beamstream_viewers").set(site.viewers.load(Ordering::Relaxed) as f64);
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(site.exporter.text())
}

/// Describes the metrics that the server publishes itself.
pub(crate) fn describe_metrics() {
    metrics::describe_counter!("beamstream_frames_received_total", "Frames that arrived, of all series");
    metrics::describe_counter!(
        "beamstream_frames_processed_total",
        "Frames that were accepted, of all series"
    );
    metrics::describe_gauge!("beamstream_frames_lost", "Frames that are missing by now, of all series");
    metrics::describe_gauge!("beamstream_viewers", "Viewers that are connected");
    metrics::describe_counter!("beamstream_view_sent_bytes_total", "Image bytes sent to viewers");
}

async fn set_parameter(
    node: web::Path<String>,
    parameters: web::Json<Map<String, Value>>,
    site: web::Data<Site>,
) -> HttpResponse {
    let mut parameters = parameters.into_inner().into_iter();
    let (Some((key, value)), None) = (parameters.next(), parameters.next()) else {
        return refusal(StatusCode::BAD_REQUEST, "expected one parameter: {\"name\": value}");
    };
    let Ok(turn) = site.changing.clone().try_acquire_owned() else {
        return refusal(StatusCode::TOO_MANY_REQUESTS, "another change is under way");
    };
    let run = site.run.clone();
    let changed = web::block(move || {
        let changed = run.set(&node, &key, value);
        drop(turn);
        changed
    });
    match changed.await {
        Ok(Ok(epoch)) => HttpResponse::Ok().json(json!({ "epoch": epoch })),
        Ok(Err(failure @ SetFailure::Waiting)) => refusal(StatusCode::ACCEPTED, &failure.to_string()),
        Ok(Err(failure)) => refusal(StatusCode::UNPROCESSABLE_ENTITY, &failure.to_string()),
        Err(canceled) => refusal(StatusCode::SERVICE_UNAVAILABLE, &canceled.to_string()),
    }
}

async fn live(
    request: HttpRequest,
    body: web::Payload,
    site: web::Data<Site>,
) -> Result<HttpResponse, Error> {
    let Some(seat) = Seat::take(&site.viewers) else {
        let text = format!("{MAX_VIEWERS} viewers are connected already");
        return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, &text));
    };
    let (response, session, messages) = actix_ws::handle(&request, body)?;
    let client = Client::new(session, site.seen.clone(), seat);
    actix_web::rt::spawn(client.serve(messages));
    Ok(response)
}

fn refusal(status: StatusCode, text: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "error": text }))
}

/// The place of one viewer; free again when dropped.
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(viewers: &Arc<AtomicUsize>) -> Option<Self> {
        let one_more = |taken: usize| (taken < MAX_VIEWERS).then_some(taken + 1);
        viewers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self(viewers.clone()))
    }

    /// How many viewers there are.
    pub(crate) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
