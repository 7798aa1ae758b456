//! What is sent, in which order: series, frames and the faults among them.

use beamstream_core::{Format, Role};
use beamstream_sim_wire::{FrameInfo, Protocol, SeriesInfo};

use crate::faults::{FaultKind, Faults};
use crate::source::SourceFrame;

/// Angles are even if none is off the line by more than this part of their step.
const EVEN_WITHIN: f64 = 1e-3;
/// What is added to the number of a series where a frame names a wrong one.
const WRONG_SERIES: u64 = 1000;

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Send the header of a series.
    Header(SeriesInfo),
    /// Send a frame.
    Image(ImageStep),
    /// Send the end of a series.
    End { series: u64 },
    /// Send nothing for a while.
    Pause { secs: f64 },
    /// Close all connections.
    Disconnect,
}

/// A frame to be sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageStep {
    /// Which frame of the source.
    pub(crate) index: usize,
    /// What its message tells.
    pub(crate) frame: FrameInfo,
    /// What happens to its pixels.
    pub(crate) damage: Option<Damage>,
    /// How long after its turn it is sent, in seconds.
    pub(crate) late_secs: Option<f64>,
}

/// What happens to the pixels of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    WrongShape,
    Truncate,
    Corrupt,
}

/// What is sent of a source in one repetition, but for the faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) frames: &'a [SourceFrame],
    pub(crate) format: Format,
    pub(crate) protocol: Protocol,
    pub(crate) frame_time_secs: f64,
    /// Which repetition of the scan, from 0.
    pub(crate) repetition: u64,
    /// The number of the first series of repetition 0.
    pub(crate) first_series: u64,
}

/// Lists all steps of one repetition: darks, flats, projections, each role in the order in which it was taken.
///
/// Protocols with series get one series a role; the others one stream, whose numbers go on from role to role and from
/// repetition to repetition.
pub(crate) fn plan(terms: &Terms<'_>, faults: &Faults) -> Vec<Step> {
    let parts = [Role::Dark, Role::Flat, Role::Projection].map(|role| {
        let with_role = terms.frames.iter().enumerate().filter(|(_, frame)| frame.role == role);
        (role, with_role.map(|(index, _)| index).collect::<Vec<_>>())
    });
    let parts: Vec<_> = parts.into_iter().filter(|(_, indices)| !indices.is_empty()).collect();
    let total: u64 = parts.iter().map(|(_, indices)| indices.len() as u64).sum();

    let mut series = terms.first_series + terms.repetition * parts.len() as u64;
    let mut first_number = if terms.protocol.has_series() { 0 } else { terms.repetition * total };
    let mut steps = Vec::new();
    for (role, indices) in parts {
        let part = Part { terms, series, role, first_number, indices };
        part.add_steps(faults, &mut steps);
        if terms.protocol.has_series() {
            series += 1;
        } else {
            first_number += part.indices.len() as u64;
        }
    }
    steps
}

/// The frames of one role.
struct Part<'a> {
    terms: &'a Terms<'a>,
    series: u64,
    role: Role,
    first_number: u64,
    indices: Vec<usize>,
}

impl Part<'_> {
    fn add_steps(&self, faults: &Faults, steps: &mut Vec<Step>) {
        // Without a header every frame tells its angle itself.
        let omega_deg = if self.terms.protocol.numbers_series() { self.even_angles() } else { None };
        if self.terms.protocol.has_series() {
            steps.push(Step::Header(SeriesInfo {
                number: self.series,
                role: self.role,
                format: self.terms.format,
                frames: self.indices.len() as u64,
                omega_deg,
                frame_time_secs: self.terms.frame_time_secs,
            }));
        }
        let none = Faults::default();
        let faults = if self.role == Role::Projection { faults } else { &none };
        let strikes = |kind, number| faults.strikes(kind, number, self.terms.repetition);
        let mut ended = !self.terms.protocol.has_series() || faults.has(FaultKind::NoEnd);
        for number in self.order(strikes) {
            if strikes(FaultKind::EarlyEnd, number) && !ended {
                steps.push(Step::End { series: self.series });
                ended = true;
            }
            if strikes(FaultKind::Stall, number) {
                steps.push(Step::Pause { secs: faults.secs(FaultKind::Stall) });
            }
            if !strikes(FaultKind::Lose, number) {
                let mut image = self.image(number, omega_deg.is_some());
                damage(&mut image, |kind| strikes(kind, number));
                image.late_secs = strikes(FaultKind::Late, number).then(|| faults.secs(FaultKind::Late));
                let copies = 1 + usize::from(strikes(FaultKind::Double, number));
                steps.extend(std::iter::repeat_n(Step::Image(image), copies));
            }
            if strikes(FaultKind::Disconnect, number) {
                steps.push(Step::Disconnect);
            }
        }
        if !ended {
            steps.push(Step::End { series: self.series });
        }
    }

    /// Numbers within the part in the order of sending.
    fn order(&self, strikes: impl Fn(FaultKind, u64) -> bool) -> Vec<u64> {
        let mut order: Vec<u64> = (0..self.indices.len() as u64).collect();
        for at in 1..order.len() {
            if strikes(FaultKind::Swap, at as u64 - 1) {
                order.swap(at - 1, at);
            }
        }
        order
    }

    fn image(&self, number: u64, angle_in_header: bool) -> ImageStep {
        let index = self.indices[number as usize];
        let angle_deg = if angle_in_header { None } else { self.terms.frames[index].angle_deg };
        ImageStep {
            index,
            frame: FrameInfo {
                series: self.series,
                number: self.first_number + number,
                role: self.role,
                angle_deg,
                format: self.terms.format,
                frame_time_secs: self.terms.frame_time_secs,
            },
            damage: None,
            late_secs: None,
        }
    }

    /// Start and increment in degrees, if the angles of the projections are even.
    fn even_angles(&self) -> Option<(f64, f64)> {
        let angle = |index: &usize| self.terms.frames[*index].angle_deg;
        let angles: Vec<f64> = self.indices.iter().map(angle).collect::<Option<_>>()?;
        let (&first, &last) = (angles.first()?, angles.last()?);
        let step = (last - first) / (angles.len() - 1).max(1) as f64;
        let off_line = |(at, angle): (usize, &f64)| (angle - (first + step * at as f64)).abs();
        let even = angles.iter().enumerate().all(|one| off_line(one) <= EVEN_WITHIN * step.abs());
        (self.role == Role::Projection && even).then_some((first, step))
    }
}

fn damage(image: &mut ImageStep, strikes: impl Fn(FaultKind) -> bool) {
    if strikes(FaultKind::WrongSeries) {
        image.frame.series += WRONG_SERIES;
    }
    let kinds = [
        (FaultKind::WrongShape, Damage::WrongShape),
        (FaultKind::Truncate, Damage::Truncate),
        (FaultKind::Corrupt, Damage::Corrupt),
    ];
    image.damage = kinds.into_iter().find(|(kind, _)| strikes(*kind)).map(|(_, damage)| damage);
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_core::ElementType;

    const FORMAT: Format = Format::frame(ElementType::U16, 4, 6);

    /// A flat, `angles` as projections, a dark and a flat.
    fn scan(angles: &[f64]) -> Vec<SourceFrame> {
        let frame = |role, angle_deg| SourceFrame { role, angle_deg };
        let mut frames = vec![frame(Role::Flat, None)];
        frames.extend(angles.iter().map(|&a| frame(Role::Projection, Some(a))));
        frames.extend([frame(Role::Dark, None), frame(Role::Flat, None), frame(Role::Invalid, None)]);
        frames
    }

    fn steps(frames: &[SourceFrame], protocol: Protocol, repetition: u64, faults: &str) -> Vec<Step> {
        let terms =
            Terms { frames, format: FORMAT, protocol, frame_time_secs: 0.1, repetition, first_series: 5 };
        plan(&terms, &faults.parse().unwrap())
    }

    /// A short text for each step: `H5x1` header of series 5 with 1 frame, `3` frame 3, `E5`, `P2`, `D`.
    fn short(steps: &[Step]) -> String {
        let texts = steps.iter().map(|step| match step {
            Step::Header(series) => format!("H{}x{}", series.number, series.frames),
            Step::Image(image) => {
                let late = image.late_secs.map_or(String::new(), |s| format!("+{s}"));
                let damage = image.damage.map_or(String::new(), |d| format!("{d:?}"));
                format!("{}{late}{damage}", image.frame.number)
            }
            Step::End { series } => format!("E{series}"),
            Step::Pause { secs } => format!("P{secs}"),
            Step::Disconnect => "D".to_owned(),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn roles_become_series_in_order() {
        let frames = scan(&[0.0, 60.0, 120.0]);
        let sent = steps(&frames, Protocol::DectrisV1, 0, "");
        assert_eq!(short(&sent), "H5x1 0 E5 H6x2 0 1 E6 H7x3 0 1 2 E7");
        assert_eq!(short(&steps(&frames, Protocol::DectrisV1, 2, ""))[..11], *"H11x1 0 E11");
        let indices = |step: &Step| {
            if let Step::Image(image) = step { Some(image.index) } else { None }
        };
        assert_eq!(sent.iter().filter_map(indices).collect::<Vec<_>>(), [4, 0, 5, 1, 2, 3]);
    }

    #[test]
    fn array_streams_count_on() {
        let frames = scan(&[0.0, 60.0, 120.0]);
        assert_eq!(short(&steps(&frames, Protocol::Array, 0, "lose=1")), "0 1 2 3 5");
        assert_eq!(short(&steps(&frames, Protocol::Array, 1, "")), "6 7 8 9 10 11");
    }

    #[test]
    fn even_angles_are_told_once_and_others_with_each_frame() {
        let omega = |protocol, angles: &[f64]| {
            let sent = steps(&scan(angles), protocol, 0, "");
            let header =
                sent.iter().rev().find_map(|s| if let Step::Header(h) = s { h.omega_deg } else { None });
            let image =
                sent.iter().rev().find_map(|s| if let Step::Image(i) = s { i.frame.angle_deg } else { None });
            (header, image)
        };
        // A real scan has angles like these: the third is rounded.
        let even = [-88.2, -86.2, -84.2001, -82.2];
        assert_eq!(omega(Protocol::DectrisV2, &even), (Some((-88.2, 2.0)), None));
        assert_eq!(omega(Protocol::Array, &even), (None, Some(-82.2)));
        assert_eq!(omega(Protocol::DectrisV1, &[0.0, 111.2, 42.4]), (None, Some(42.4)));
    }

    #[test]
    fn faults_strike_projections_only() {
        let frames = scan(&[0.0, 30.0, 60.0, 90.0, 120.0, 150.0]);
        let sent = |faults| {
            let steps = steps(&frames, Protocol::DectrisV1, 0, faults);
            short(&steps).rsplit("H7x6 ").next().unwrap().to_owned()
        };
        assert_eq!(sent("lose=0,5"), "1 2 3 4 E7");
        assert_eq!(sent("double=3;swap=0"), "1 0 2 3 3 4 5 E7");
        assert_eq!(sent("late=2:1.5;no-end"), "0 1 2+1.5 3 4 5");
        assert_eq!(sent("early-end=4;stall=1:2;disconnect=2"), "0 P2 1 2 D 3 E7 4 5");
        assert_eq!(sent("wrong-shape=1;truncate=2;corrupt=3"), "0 1WrongShape 2Truncate 3Corrupt 4 5 E7");
        let series = steps(&frames, Protocol::DectrisV1, 0, "wrong-series=2");
        let wrong = |step: &&Step| matches!(step, Step::Image(i) if i.frame.series == 1007);
        assert_eq!(series.iter().filter(wrong).count(), 1);
    }
}
