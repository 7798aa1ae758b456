//! One open series: roles, angles and numbers of its frames.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use beamstream_core::{
    BlockMeta, Format, FrameId, Ledger, Pass, Role, RoleCounts, SeriesHeader, SeriesId, Timestamps, Verdict,
};

use crate::protocol::{Image, Start};

use super::Rules;

/// Longest list of angles that is made ahead by a rule: 8 MiB.
const MAX_ANGLES: u64 = 1 << 20;
/// A stream without header whose first number is at least this is taken to count on from earlier ones.
const COUNTS_ON: u64 = 16;
/// Most numbers of darks and flats that are kept to number the projections.
const MAX_OTHERS: usize = 1 << 20;

/// A series that frames can still join.
#[derive(Debug)]
pub(super) struct OpenSeries {
    pub(super) id: SeriesId,
    /// The detector's own number, where the protocol has one.
    pub(super) number: Option<u64>,
    /// Who sent the header.
    pub(super) peer: u64,
    /// The header; `None` in protocols without.
    pub(super) start: Option<Start>,
    /// Format of all frames: the header's if it tells, else that of the first frame.
    format: Option<Format>,
    /// Role of the series as a whole, where one is told.
    role: Option<Role>,
    /// Whether the series was begun downstream.
    pub(super) begun: bool,
    /// When the end message came.
    pub(super) ended: Option<Instant>,
    /// When something of the series came last.
    pub(super) heard: Instant,
    /// Frames without a number that came.
    arrived: u64,
    /// The first number of a stream that counts on from earlier ones, else 0.
    base: Option<u64>,
    /// First number and count of accepted frames, per counter.
    counters: BTreeMap<u8, (u64, u64)>,
    /// Numbers of accepted frames that are no projections, ascending.
    others: Vec<u64>,
    projections: u64,
    /// What an earlier run has left of the series: numbers from here on are free for frames that have none.
    resumed: u64,
    /// Angles of the projections, as an earlier run knew them ahead.
    known_angles_rad: Option<Arc<[f64]>>,
}

/// A frame that is to be decoded into a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket {
    /// What travels with the block.
    pub meta: BlockMeta,
    /// Format of the block.
    pub format: Format,
    /// Where the pixels are in the message.
    pub image: Box<Image>,
}

impl OpenSeries {
    pub(super) fn new(
        id: SeriesId,
        number: Option<u64>,
        start: Option<Start>,
        rules: &Rules,
        turn: u64,
        peer: u64,
        now: Instant,
    ) -> Self {
        let by_order = match rules.series_roles.len() {
            0 => None,
            len => usize::try_from(turn % len as u64).ok().map(|at| rules.series_roles[at]),
        };
        let told = start.as_ref().and_then(|start| start.role);
        let format = start.as_ref().and_then(|start| {
            let format = Format::frame(start.element?, start.shape?.rows, start.shape?.columns);
            format.checked_bytes().map(|_| format)
        });
        Self {
            id,
            number,
            peer,
            format,
            role: rules.role.or(told).or(by_order),
            start,
            begun: false,
            ended: None,
            heard: now,
            arrived: 0,
            base: None,
            counters: BTreeMap::new(),
            others: Vec::new(),
            projections: 0,
            resumed: 0,
            known_angles_rad: None,
        }
    }

    /// Frames that the header announced.
    pub(super) fn announced(&self) -> Option<u64> {
        self.start.as_ref().and_then(|start| start.expected_frames)
    }

    /// The role of a frame: fixed, told by its message or its series' header, by number, by order of series.
    fn role_of(&self, image: &Image, number: u64, rules: &Rules) -> Role {
        let header = self.start.as_ref().and_then(|start| start.role);
        rules
            .role
            .or(image.role)
            .or(header)
            .or_else(|| rules.role_by_number(number))
            .or(self.role)
            .unwrap_or(Role::Projection)
    }

    /// The identity and role of a frame; frames without a number are counted on arrival.
    pub(super) fn identify(&self, image: &Image, rules: &Rules) -> (FrameId, Role) {
        let number = image.number.unwrap_or(self.resumed + self.arrived);
        let role = self.role_of(image, number, rules);
        let id = if image.counted_by_role { FrameId::by_role(role, number) } else { FrameId::new(number) };
        (id, role)
    }

    /// The identity of a refused frame, where it is known; frames without a number are counted on arrival.
    pub(super) fn refused(&mut self, number: Option<u64>) -> Option<FrameId> {
        if number.is_none() && self.arrived > 0 {
            self.arrived += 1;
            return Some(FrameId::new(self.resumed + self.arrived - 1));
        }
        number.map(FrameId::new)
    }

    /// Notes that a frame without a number arrived.
    pub(super) fn count_arrival(&mut self, image: &Image) {
        if image.number.is_none() {
            self.arrived += 1;
        }
    }

    /// Whether a frame begins the next series, in protocols that do not tell where one begins.
    pub(super) fn is_followed_by(&self, image: &Image, id: FrameId, ledger: &Ledger) -> bool {
        if self.start.is_some() || image.series.is_some() {
            return false;
        }
        let again = ledger.judge(id) == Verdict::Duplicate;
        let restarted =
            self.counters.get(&id.counter).is_some_and(|(first, count)| *first == id.number && *count > 1);
        (self.ended.is_some() && (again || image.number.is_none())) || (again && restarted)
    }

    /// Whether frames that were not seen may still come after the end message.
    pub(super) fn may_be_overtaken(&self, ledger: &Ledger) -> bool {
        match (self.announced(), &self.start) {
            (Some(_), _) => !ledger.all_accepted(),
            (None, Some(_)) => true,
            (None, None) => self.arrived == 0 && ledger.counts().lost > 0,
        }
    }

    /// The format that frames must have; the first frame fixes it if the header did not.
    pub(super) fn expect(&self, found: Format) -> Result<(), String> {
        match self.format {
            Some(expected) if expected != found => {
                Err(format!("a frame of {found} in a series of {expected}"))
            }
            _ => Ok(()),
        }
    }

    /// Begins the series with the format of a frame.
    pub(super) fn begin(&mut self, format: Format, rules: &Rules) -> SeriesHeader {
        self.begun = true;
        self.format = Some(format);
        let mut header = SeriesHeader::frames(self.id, format);
        header.pass = Pass::whole(format.shape.rows);
        header.angles_rad = self.angles_ahead(rules);
        header.roles = self.roles_ahead(rules);
        if let Some(start) = &self.start {
            header.expected_frames = start.expected_frames;
            header.pixel_size_m = start.pixel_size_m;
            header.metadata = Arc::new(start.metadata.clone());
        }
        header
    }

    /// Angles of the projections, by number of the projection, where they are known before they come.
    fn angles_ahead(&self, rules: &Rules) -> Option<Arc<[f64]>> {
        if matches!(self.role, Some(Role::Dark | Role::Flat | Role::Invalid)) {
            return None;
        }
        let message = self.start.as_ref().and_then(|start| start.angles);
        let message = message.filter(|_| !rules.angles.wins || rules.angles.is_empty());
        if message.is_none() && rules.angles.table_rad.is_some() {
            return rules.angles.table_rad.clone();
        }
        let expected = self.announced().filter(|count| *count <= MAX_ANGLES)?;
        let is_projection =
            |number: &u64| rules.role_by_number(*number).is_none_or(|role| role == Role::Projection);
        let numbers = (0..expected).filter(is_projection);
        match message {
            Some(rule) => Some(numbers.map(|number| rule.angle_rad(number)).collect()),
            None => numbers.enumerate().map(|(at, _)| rules.angles.angle_rad(at as u64)).collect(),
        }
    }

    /// How many frames of each role will come, where every frame's role is known before they come.
    fn roles_ahead(&self, rules: &Rules) -> Option<RoleCounts> {
        let all = self.announced()?;
        let none = RoleCounts { darks: 0, flats: 0, projections: 0, references_first: true };
        match self.role {
            Some(Role::Dark) => return Some(RoleCounts { darks: all, ..none }),
            Some(Role::Flat) => return Some(RoleCounts { flats: all, ..none }),
            Some(Role::Projection) if rules.roles.is_empty() => {
                return Some(RoleCounts { projections: all, ..none });
            }
            _ if rules.roles.is_empty() => return None,
            _ => {}
        }
        let count = |role| rules.numbers_of(role, all);
        let others = rules.others_below(all);
        Some(RoleCounts {
            darks: count(Role::Dark),
            flats: count(Role::Flat),
            projections: all.saturating_sub(others),
            references_first: rules.others_below(others) == others,
        })
    }

    /// Number of a projection among the projections of its series.
    fn projection(&self, id: FrameId, rules: &Rules) -> u64 {
        if id.counter != 0 {
            return id.number;
        }
        let base = self.base.unwrap_or(0);
        let others = if rules.roles.is_empty() {
            self.others.partition_point(|other| *other < id.number) as u64
        } else {
            rules.others_below(id.number)
        };
        id.number.saturating_sub(base).saturating_sub(others)
    }

    /// All that travels with a frame.
    pub(super) fn describe(
        &mut self,
        image: &Image,
        id: FrameId,
        role: Role,
        rules: &Rules,
        received_ns: u64,
    ) -> BlockMeta {
        self.set_base(id, rules);
        let mut meta = BlockMeta::new(id, role);
        meta.time = Timestamps { detector_secs: image.detector_secs, received_ns };
        meta.angle_rad = image.angle_rad;
        if role == Role::Projection {
            meta.projection = self.projection(id, rules);
            let header =
                self.start.as_ref().and_then(|start| start.angles).map(|rule| rule.angle_rad(id.number));
            let known = self.known_angles_rad.as_ref().zip(usize::try_from(meta.projection).ok());
            let known = known.and_then(|(angles, at)| angles.get(at).copied());
            let told = image.angle_rad.or(header).or(known);
            let ruled = rules.angles.angle_rad(meta.projection);
            meta.angle_rad = if rules.angles.wins { ruled.or(told) } else { told.or(ruled) };
        }
        meta
    }

    /// The first frame says whether the numbers count on from earlier series.
    fn set_base(&mut self, id: FrameId, rules: &Rules) {
        let counts_on = self.start.is_none() && rules.roles.is_empty() && id.number >= COUNTS_ON;
        self.base.get_or_insert(if counts_on { id.number } else { 0 });
    }

    /// Goes on with what an earlier run knew of the series.
    pub(super) fn resume(&mut self, header: &SeriesHeader) {
        self.begun = true;
        self.format = Some(header.format);
        self.known_angles_rad.clone_from(&header.angles_rad);
    }

    /// Notes a frame that an earlier run has accepted.
    pub(super) fn resumed(&mut self, meta: &BlockMeta, rules: &Rules) {
        self.set_base(meta.frame, rules);
        self.resumed = self.resumed.max(meta.frame.number + 1);
        if rules.roles.is_empty() {
            self.role.get_or_insert(meta.role);
        }
        self.accepted(meta);
    }

    /// Notes that a frame was accepted.
    pub(super) fn accepted(&mut self, meta: &BlockMeta) {
        let (_, count) = self.counters.entry(meta.frame.counter).or_insert((meta.frame.number, 0));
        *count += 1;
        if meta.role == Role::Projection {
            self.projections += 1;
        } else if self.others.len() < MAX_OTHERS {
            let at = self.others.partition_point(|other| *other < meta.frame.number);
            self.others.insert(at, meta.frame.number);
        }
    }

    /// Whether the series counts as one of projections: it had some, or none but should have had.
    pub(super) fn is_of_projections(&self) -> bool {
        let nothing_came = self.counters.is_empty();
        self.projections > 0 || (nothing_came && self.role.is_none_or(|role| role == Role::Projection))
    }
}
