//! Which frame belongs to which series, what it is for, and when a series ends.
//!
//! The [`Assembler`] is a state machine without I/O and without a clock: it is told what came and what time
//! it is, and answers with [`Action`]s in the order in which they are to be done. It keeps the account of
//! every series of the run, also for frames that come after the end.

mod resume;
mod rules;
mod series;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use beamstream_core::{FrameCounts, FrameId, Ledger, Role, SeriesHeader, SeriesId, SeriesSummary, Verdict};

use crate::protocol::{Image, Incoming, Refusal, Start};

pub use rules::{AngleTable, Rules};
pub use series::Ticket;

use series::OpenSeries;

/// Series whose account is kept for frames that come late; the oldest are forgotten beyond.
const MAX_SERIES: usize = 20_000;
/// Series of which only stray frames came; strays of further ones are counted together with the last.
const MAX_STRAYS: usize = 256;

/// What is to be done next.
#[derive(Debug)]
pub enum Action {
    /// A series begins; sent before its first frame.
    Begin(Box<SeriesHeader>),
    /// A frame is to be decoded; say how it went with [`Assembler::filled`] before anything else.
    Frame(Ticket),
    /// The series that was begun ends.
    End(Box<SeriesSummary>),
    /// Something to tell the user.
    Warn(String),
}

/// The account of one series.
#[derive(Debug, Clone)]
pub struct Account {
    /// Which series.
    pub id: SeriesId,
    /// What became of its frames.
    pub counts: FrameCounts,
    /// When its first frame came, good or bad.
    pub first_frame: Option<Instant>,
    /// When its last frame came, good or bad.
    pub last_frame: Option<Instant>,
    /// Whether it was cut short.
    pub aborted: bool,
}

struct Entry {
    id: SeriesId,
    ledger: Ledger,
    first_frame: Option<Instant>,
    last_frame: Option<Instant>,
    aborted: bool,
}

/// Sorts the messages of a detector into series.
pub struct Assembler {
    rules: Rules,
    started: Instant,
    open: Option<OpenSeries>,
    /// Accounts by ordinal.
    entries: BTreeMap<u64, Entry>,
    /// Ordinal of the latest series with a detector's number.
    by_number: BTreeMap<u64, u64>,
    /// Ordinals of the accounts of stray frames, by the detector's number of their series.
    strays: BTreeMap<u64, u64>,
    /// Accounts that changed since they were last asked for.
    changed: BTreeSet<u64>,
    next_ordinal: u64,
    /// Series that were opened, for the roles by order.
    opened: u64,
    projection_series: u64,
    actions: VecDeque<Action>,
}

impl Assembler {
    /// An assembler for a run that starts at `now`.
    pub fn new(rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            started: now,
            open: None,
            entries: BTreeMap::new(),
            by_number: BTreeMap::new(),
            strays: BTreeMap::new(),
            changed: BTreeSet::new(),
            next_ordinal: 0,
            opened: 0,
            projection_series: 0,
            actions: VecDeque::new(),
        }
    }

    /// What is to be done next, if anything.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether as many projection series as were asked for have ended.
    pub fn is_finished(&self) -> bool {
        self.open.is_none() && self.rules.max_series.is_some_and(|max| self.projection_series >= max)
    }

    /// Takes what a message says; `peer` tells the connections apart.
    pub fn receive(&mut self, message: Result<Incoming, Refusal>, peer: u64, now: Instant) {
        self.poll(now);
        if self.is_finished() {
            return;
        }
        match message {
            Ok(Incoming::Start(start)) => self.start(*start, peer, now),
            Ok(Incoming::Image(image)) => self.image(image, peer, now),
            Ok(Incoming::End { series }) => self.end(series, now),
            Ok(Incoming::Ignored(what)) => tracing::debug!(what, "message ignored"),
            Err(refusal) => self.refusal(&refusal, peer, now),
        }
    }

    /// Closes a series whose time is over.
    pub fn poll(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            if self.open.as_ref().is_some_and(|open| open.ended.is_none()) {
                let secs = self.rules.series_timeout.as_secs_f64();
                self.warn(format!("a series was closed after {secs} s of silence (series_timeout_secs)"));
            }
            self.close(false);
        }
    }

    /// When [`Self::poll`] will have something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let open = self.open.as_ref()?;
        let silence = open.heard.checked_add(self.rules.series_timeout);
        let grace = open.ended.and_then(|ended| ended.checked_add(self.rules.end_grace));
        [silence, grace].into_iter().flatten().min()
    }

    /// Says how the decoding of a frame went.
    pub fn filled(&mut self, ticket: &Ticket, outcome: Result<(), String>) {
        let Some(open) = &mut self.open else { return };
        let Some(entry) = self.entries.get_mut(&open.id.ordinal) else {
            return;
        };
        match outcome {
            Ok(()) => {
                entry.ledger.receive(ticket.meta.frame);
                open.accepted(&ticket.meta);
            }
            Err(reason) => {
                entry.ledger.reject(Some(ticket.meta.frame), &reason);
                self.warn(format!("a frame was rejected: {reason}"));
            }
        }
        self.close_if_complete();
    }

    /// Ends the open series, as when the user stops the run.
    pub fn abort(&mut self) {
        self.close(true);
    }

    /// The accounts that changed since the last call.
    pub fn take_changed(&mut self) -> Vec<Account> {
        let changed = std::mem::take(&mut self.changed);
        let account = |entry: &Entry| Account {
            id: entry.id,
            counts: entry.ledger.counts(),
            first_frame: entry.first_frame,
            last_frame: entry.last_frame,
            aborted: entry.aborted,
        };
        changed
            .iter()
            .filter_map(|ordinal| self.entries.get(ordinal))
            // A series without a frame may be armed again; it is told once it is over.
            .filter(|entry| entry.ledger.is_closed() || !entry.ledger.is_untouched())
            .map(account)
            .collect()
    }

    fn start(&mut self, start: Start, peer: u64, now: Instant) {
        if let Some(open) = &mut self.open
            && open.number == start.series
            && open.ended.is_none()
        {
            open.heard = now;
            let ordinal = open.id.ordinal;
            if open.peer != peer {
                // Detectors with several sockets send the header on each of them.
                tracing::debug!(series = open.number, "the header came again from another peer");
                return;
            }
            if self.entries.get(&ordinal).is_some_and(|entry| entry.ledger.is_untouched()) {
                // Armed again before the first frame: the new header takes the place of the old one.
                self.entries.remove(&ordinal);
                self.open = None;
                self.opened -= 1;
            }
        }
        self.close(false);
        self.open_series(start.series, Some(start), peer, now);
    }

    fn open_series(&mut self, number: Option<u64>, start: Option<Start>, peer: u64, now: Instant) {
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        let id = SeriesId { number: number.unwrap_or(self.opened), ordinal };
        let turn = self.opened;
        self.opened += 1;
        let open = OpenSeries::new(id, number, start, &self.rules, turn, peer, now);
        let mut ledger = Ledger::new(open.announced());
        let strays = number.and_then(|number| self.strays.remove(&number));
        if let Some(entry) = strays.and_then(|ordinal| self.entries.remove(&ordinal)) {
            // Frames that came before the header: they stay refused, under the series that they belong to.
            for (reason, count) in entry.ledger.counts().rejected_by_reason {
                (0..count).for_each(|_| ledger.refuse(&reason));
            }
        }
        if let Some(number) = number {
            self.by_number.insert(number, ordinal);
        }
        self.entries
            .insert(ordinal, Entry { id, ledger, first_frame: None, last_frame: None, aborted: false });
        self.changed.insert(ordinal);
        self.open = Some(open);
        self.forget();
    }

    /// Forgets the oldest account beyond the limit, but never the open series'.
    fn forget(&mut self) {
        if self.entries.len() > MAX_SERIES
            && let Some((ordinal, entry)) = self.entries.pop_first()
        {
            self.by_number.retain(|number, latest| *number != entry.id.number || *latest != ordinal);
            self.strays.retain(|_, stray| *stray != ordinal);
        }
    }

    fn image(&mut self, image: Box<Image>, peer: u64, now: Instant) {
        if image.series.is_none() && self.open.is_none() {
            self.open_series(None, None, peer, now);
        }
        let Some(mut open) = self.open.take_if(|open| image.series.is_none() || open.number == image.series)
        else {
            self.stray(image.series, image.number, None, now);
            return;
        };
        let (mut id, mut role) = open.identify(&image, &self.rules);
        if self
            .entries
            .get(&open.id.ordinal)
            .is_some_and(|entry| open.is_followed_by(&image, id, &entry.ledger))
        {
            self.open = Some(open);
            self.close(false);
            self.open_series(None, None, peer, now);
            let Some(next) = self.open.take() else { return };
            open = next;
            (id, role) = open.identify(&image, &self.rules);
        }
        self.admit(&mut open, image, id, role, now);
        self.open = Some(open);
        self.close_if_complete();
    }

    /// Counts a frame of the open series or hands it on to be decoded.
    fn admit(&mut self, open: &mut OpenSeries, image: Box<Image>, id: FrameId, role: Role, now: Instant) {
        open.heard = now;
        open.count_arrival(&image);
        let Some(entry) = self.entries.get_mut(&open.id.ordinal) else {
            return;
        };
        entry.seen(now);
        self.changed.insert(open.id.ordinal);
        let format = image.format();
        if let Err(reason) = open.expect(format) {
            entry.ledger.reject(Some(id), &reason);
            self.actions.push_back(Action::Warn(format!("a frame was rejected: {reason}")));
        } else if entry.ledger.judge(id) == Verdict::Accepted {
            if !open.begun {
                let header = open.begin(format, &self.rules);
                self.actions.push_back(Action::Begin(Box::new(header)));
            }
            let received_ns = u64::try_from((now - self.started).as_nanos()).unwrap_or(u64::MAX);
            let meta = open.describe(&image, id, role, &self.rules, received_ns);
            self.actions.push_back(Action::Frame(Ticket { meta, format, image }));
        } else if entry.ledger.receive(id) == Verdict::OutOfRange {
            let text = format!("frame {id} lies outside the announced range and was rejected");
            self.actions.push_back(Action::Warn(text));
        }
    }

    fn end(&mut self, series: Option<u64>, now: Instant) {
        let Some(open) = &mut self.open else { return };
        if series.is_some() && open.number != series {
            tracing::debug!(series, "an end message that belongs to nothing");
            return;
        }
        open.heard = now;
        open.ended.get_or_insert(now);
        self.close_if_complete();
    }

    fn refusal(&mut self, refusal: &Refusal, peer: u64, now: Instant) {
        let reason = refusal.to_string();
        if !refusal.is_frame {
            self.warn(format!("a message was refused: {reason}"));
            return;
        }
        self.warn(format!("a frame was rejected: {reason}"));
        // Protocols without series numbers open a series by any frame that has a number.
        if self.open.is_none() && refusal.series.is_none() && refusal.number.is_some() {
            self.open_series(None, None, peer, now);
        }
        match &mut self.open {
            Some(open) if refusal.series.is_none() || open.number == refusal.series => {
                open.heard = now;
                let id = open.refused(refusal.number);
                if let Some(entry) = self.entries.get_mut(&open.id.ordinal) {
                    entry.seen(now);
                    entry.ledger.reject(id, &reason);
                }
                self.changed.insert(open.id.ordinal);
                self.close_if_complete();
            }
            _ => self.stray(refusal.series, refusal.number, Some(&reason), now),
        }
    }

    /// Counts a frame of a series that is not open: late if it was, else refused under its own number.
    fn stray(&mut self, series: Option<u64>, number: Option<u64>, damage: Option<&str>, now: Instant) {
        let Some(series) = series else { return };
        let id = number.map(FrameId::new);
        let known = self.by_number.get(&series).copied();
        let ordinal = known.unwrap_or_else(|| self.stray_account(series));
        let Some(entry) = self.entries.get_mut(&ordinal) else {
            return;
        };
        entry.seen(now);
        match (known, damage, id) {
            (Some(_), None, Some(id)) => {
                entry.ledger.receive(id);
            }
            (Some(_), damage, id) => entry.ledger.reject(id, damage.unwrap_or("a frame without a number")),
            (None, damage, _) => {
                entry.ledger.refuse(damage.unwrap_or("no header of its series came before it"));
            }
        }
        self.changed.insert(ordinal);
        let what = if known.is_some() { "came after its end" } else { "came without a header" };
        self.warn(format!("frames of series {series} {what}: they are counted and left out"));
    }

    fn stray_account(&mut self, series: u64) -> u64 {
        if let Some(ordinal) = self.strays.get(&series) {
            return *ordinal;
        }
        if self.strays.len() >= MAX_STRAYS
            && let Some((_, ordinal)) = self.strays.last_key_value()
        {
            return *ordinal;
        }
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        let id = SeriesId { number: series, ordinal };
        let ledger = Ledger::new(None);
        self.entries
            .insert(ordinal, Entry { id, ledger, first_frame: None, last_frame: None, aborted: false });
        self.strays.insert(series, ordinal);
        ordinal
    }

    fn close_if_complete(&mut self) {
        let Some(open) = &self.open else { return };
        let Some(entry) = self.entries.get(&open.id.ordinal) else {
            return;
        };
        let waiting = self.actions.iter().any(|action| matches!(action, Action::Frame(_)));
        let complete =
            entry.ledger.all_accepted() || (open.ended.is_some() && !open.may_be_overtaken(&entry.ledger));
        if complete && !waiting {
            self.close(false);
        }
    }

    fn close(&mut self, aborted: bool) {
        let Some(open) = self.open.take() else { return };
        if open.is_of_projections() {
            self.projection_series += 1;
        }
        let Some(entry) = self.entries.get_mut(&open.id.ordinal) else {
            return;
        };
        entry.ledger.close();
        entry.aborted = aborted;
        self.changed.insert(open.id.ordinal);
        if open.begun {
            let summary = SeriesSummary { counts: entry.ledger.counts(), aborted };
            self.actions.push_back(Action::End(Box::new(summary)));
        }
    }

    fn warn(&mut self, text: String) {
        self.actions.push_back(Action::Warn(text));
    }
}

impl Entry {
    fn seen(&mut self, now: Instant) {
        self.first_frame.get_or_insert(now);
        self.last_frame = Some(now);
    }
}

#[cfg(test)]
mod tests;
