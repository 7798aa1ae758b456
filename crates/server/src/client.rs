//! One viewer at the WebSocket: gets the newest images, one after the other, and misses the rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix_ws::{CloseCode, CloseReason, Closed, Message, MessageStream, Session};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::http::Seat;
use crate::picture::{Picture, Spot};
use crate::watcher::Seen;

/// Image bytes a second that all viewers together get.
const BUDGET_BYTES_PER_SEC: f64 = 64e6;
/// Longest message that a viewer may send. Unit: bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// How often a viewer is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A viewer that is silent, or takes nothing, for this long is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to one viewer.
pub(crate) struct Client {
    session: Session,
    seen: Seen,
    seat: Seat,
    /// Which image of each spot was sent last: its place and version.
    sent: HashMap<Spot, (u64, u64)>,
    /// The spot of the image that was sent last; the next one is looked for behind it.
    last: Spot,
    /// Whether an image is under way that the viewer has not acknowledged.
    in_flight: bool,
    /// Until when the budget is used up.
    resting_until: Option<Instant>,
    /// The view that the viewer wants to see; `None`: all.
    wanted_node: Option<String>,
    heard: Instant,
}

/// Why a connection ends.
enum End {
    /// The viewer is gone or takes nothing.
    Gone,
    /// The viewer is told why.
    Refused(&'static str),
}

impl From<Closed> for End {
    fn from(_closed: Closed) -> Self {
        Self::Gone
    }
}

impl Client {
    pub(crate) fn new(session: Session, seen: Seen, seat: Seat) -> Self {
        Self {
            session,
            seen,
            seat,
            sent: HashMap::new(),
            last: Spot::default(),
            in_flight: false,
            resting_until: None,
            wanted_node: None,
            heard: Instant::now(),
        }
    }

    /// Serves the viewer until it goes.
    pub(crate) async fn serve(mut self, messages: MessageStream) {
        let reason = match self.converse(messages.max_frame_size(MAX_MESSAGE_BYTES)).await {
            End::Gone => None,
            End::Refused(text) => {
                Some(CloseReason { code: CloseCode::Policy, description: Some(text.to_owned()) })
            }
        };
        // If the viewer does not take even this, the connection is dropped.
        drop(timeout(HEARTBEAT, self.session.close(reason)).await);
    }

    async fn converse(&mut self, mut messages: MessageStream) -> End {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.seen.status.mark_changed();
        self.seen.pictures.mark_changed();
        loop {
            let rest = self.resting_until;
            let step = tokio::select! {
                message = messages.recv() => match message {
                    Some(Ok(message)) => self.hear(message).await,
                    Some(Err(_)) | None => Err(End::Gone),
                },
                changed = self.seen.status.changed() => match changed {
                    Ok(()) => self.send_status().await,
                    Err(_stopped) => Err(End::Gone),
                },
                // When the watcher has stopped, this branch rests; the last state is still to be sent.
                Ok(()) = self.seen.pictures.changed() => Ok(()),
                () = sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {
                    self.resting_until = None;
                    Ok(())
                }
                _ = heartbeat.tick() => self.ping().await,
            };
            let step = match step {
                Ok(()) => self.send_image().await,
                ended => ended,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn hear(&mut self, message: Message) -> Result<(), End> {
        self.heard = Instant::now();
        match message {
            Message::Text(text) if text == "ack" => self.in_flight = false,
            Message::Text(text) => match text.strip_prefix("show ") {
                Some(node) => {
                    self.wanted_node = Some(node.to_owned());
                    // What was seen of other views is long gone from the screen.
                    self.sent.clear();
                }
                None => return Err(End::Refused("expected 'ack' or 'show NODE'")),
            },
            Message::Ping(payload) => patiently(self.session.pong(&payload)).await?,
            Message::Pong(_) | Message::Nop => {}
            Message::Binary(_) | Message::Continuation(_) => {
                return Err(End::Refused("expected short text messages"));
            }
            Message::Close(_) => return Err(End::Gone),
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), End> {
        if self.heard.elapsed() > PATIENCE {
            return Err(End::Gone);
        }
        patiently(self.session.ping(b"")).await
    }

    async fn send_status(&mut self) -> Result<(), End> {
        let shown = self.seen.status.borrow_and_update().clone();
        patiently(self.session.text(shown.json.clone())).await
    }

    /// Sends one image that the viewer has not seen, if it may get one now.
    async fn send_image(&mut self) -> Result<(), End> {
        if self.in_flight || self.resting_until.is_some() {
            return Ok(());
        }
        let Some(picture) = self.next_picture() else {
            return Ok(());
        };
        if self.seen.status.has_changed().unwrap_or(false) {
            // The state names the place of the image.
            self.send_status().await?;
        }
        self.sent.insert(picture.spot, (picture.place, picture.version));
        self.last = picture.spot;
        self.in_flight = true;
        let bytes = picture.bytes.len();
        let rest = bytes as f64 * self.seat.taken() as f64 / BUDGET_BYTES_PER_SEC;
        self.resting_until = Some(Instant::now() + Duration::from_secs_f64(rest));
        metrics::counter!("beamstream_view_sent_bytes_total").increment(bytes as u64);
        patiently(self.session.binary(picture.bytes.clone())).await
    }

    /// The next image that is news to the viewer, in turns over all spots.
    fn next_picture(&self) -> Option<Arc<Picture>> {
        let pictures = self.seen.pictures.borrow();
        let wanted_view = match &self.wanted_node {
            Some(node) => {
                Some(self.seen.status.borrow().status.views.iter().position(|view| view.node == *node)?)
            }
            None => None,
        };
        let is_news = |picture: &Picture| {
            wanted_view.is_none_or(|view| view == usize::from(picture.spot.view))
                && self.sent.get(&picture.spot) != Some(&(picture.place, picture.version))
        };
        let behind = pictures.values().filter(|picture| picture.spot > self.last);
        let from_the_start = pictures.values().filter(|picture| picture.spot <= self.last);
        behind.chain(from_the_start).find(|picture| is_news(picture)).cloned()
    }
}

/// Sends, unless the viewer takes nothing for too long.
async fn patiently(send: impl Future<Output = Result<(), Closed>>) -> Result<(), End> {
    match timeout(PATIENCE, send).await {
        Ok(sent) => Ok(sent?),
        Err(_elapsed) => Err(End::Gone),
    }
}
