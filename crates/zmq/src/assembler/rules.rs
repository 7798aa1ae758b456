//! What the user says about roles and angles.

use std::sync::Arc;
use std::time::Duration;

use beamstream_core::{AngleRule, IndexRange, Role};

/// Roles and angles by rule, and when a series ends.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The role of every frame, whatever the messages say.
    pub role: Option<Role>,
    /// Frame numbers of darks and flats; all others are projections. For messages that tell no role.
    pub roles: Vec<(Role, IndexRange)>,
    /// Roles of the series in their order, repeated. For messages that tell no role.
    pub series_roles: Vec<Role>,
    /// Angles for projections whose message tells none.
    pub angles: AngleTable,
    /// How long a series stays open after its end message while frames are missing.
    pub end_grace: Duration,
    /// Silence after which a series is closed.
    pub series_timeout: Duration,
    /// Projection series after which the source ends.
    pub max_series: Option<u64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            role: None,
            roles: Vec::new(),
            series_roles: Vec::new(),
            angles: AngleTable::default(),
            end_grace: Duration::from_millis(500),
            series_timeout: Duration::from_secs(30),
            max_series: None,
        }
    }
}

impl Rules {
    /// The role of frame `number` by its number, if roles are told by number.
    pub(super) fn role_by_number(&self, number: u64) -> Option<Role> {
        if self.roles.is_empty() {
            return None;
        }
        let listed = self.roles.iter().find(|(_, range)| range.contains(number));
        Some(listed.map_or(Role::Projection, |(role, _)| *role))
    }

    /// Numbers below `number` that are no projections by their number.
    pub(super) fn others_below(&self, number: u64) -> u64 {
        [Role::Dark, Role::Flat, Role::Invalid].into_iter().map(|role| self.numbers_of(role, number)).sum()
    }

    /// Numbers below `number` that have a role by their number.
    pub(super) fn numbers_of(&self, role: Role, number: u64) -> u64 {
        let below = |range: &IndexRange| range.end.min(number).saturating_sub(range.first);
        self.roles.iter().filter(|(listed, _)| *listed == role).map(|(_, range)| below(range)).sum()
    }
}

/// Angles of projections from a table or by start and step, counted over projections only.
#[derive(Debug, Clone, Default)]
pub struct AngleTable {
    /// Angle of each projection in radians.
    pub table_rad: Option<Arc<[f64]>>,
    /// The rule, where there is no table.
    pub rule: Option<AngleRule>,
    /// Whether these win over what the messages say.
    pub wins: bool,
}

impl AngleTable {
    /// Whether there are any angles.
    pub(super) fn is_empty(&self) -> bool {
        self.table_rad.is_none() && self.rule.is_none()
    }

    /// Angle of a projection in radians.
    pub(super) fn angle_rad(&self, projection: u64) -> Option<f64> {
        match &self.table_rad {
            Some(table) => usize::try_from(projection).ok().and_then(|at| table.get(at).copied()),
            None => self.rule.map(|rule| rule.angle_rad(projection)),
        }
    }
}
