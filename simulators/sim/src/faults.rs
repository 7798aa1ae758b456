//! Faults that a simulated detector or network makes on request.

use std::ops::RangeInclusive;
use std::str::FromStr;

use beamstream_sim_wire::Protocol;

use crate::random::Random;

/// A kind of fault. Frames are counted from 0 among the projections of a series; darks and flats are spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The frame is not sent.
    Lose,
    /// The frame is sent twice.
    Double,
    /// The frame changes places with the next.
    Swap,
    /// The frame comes some seconds after its turn; nothing waits for it.
    Late,
    /// The frame names another series.
    WrongSeries,
    /// The frame has half of its rows.
    WrongShape,
    /// Half of the pixel data is missing.
    Truncate,
    /// The pixel data, or for plain pixels the first part, is noise that cannot be read.
    Corrupt,
    /// The end of the series is not told.
    NoEnd,
    /// The end of the series is told before the frame.
    EarlyEnd,
    /// All connections are closed after the frame.
    Disconnect,
    /// Nothing is sent for some seconds before the frame.
    Stall,
}

/// What follows the name of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    Frame,
    Frames,
    FramesAndSeconds,
}

impl Form {
    const fn describe(self) -> &'static str {
        match self {
            Self::Nothing => "nothing after its name",
            Self::Frame => "the number of a frame",
            Self::Frames => "numbers of frames as 3,17,20-25 or a rate as 1%",
            Self::FramesAndSeconds => "frames or a rate, and seconds, as 20:2.5 or 1%:2.5",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Frame => "=N",
            Self::Frames => "=FRAMES",
            Self::FramesAndSeconds => "=FRAMES:SECONDS",
        }
    }
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Lose,
        Self::Double,
        Self::Swap,
        Self::Late,
        Self::WrongSeries,
        Self::WrongShape,
        Self::Truncate,
        Self::Corrupt,
        Self::NoEnd,
        Self::EarlyEnd,
        Self::Disconnect,
        Self::Stall,
    ];

    /// Name, form of the value, and what the fault does.
    const fn describe(self) -> (&'static str, Form, &'static str) {
        match self {
            Self::Lose => ("lose", Form::Frames, "the frame is not sent"),
            Self::Double => ("double", Form::Frames, "the frame is sent twice"),
            Self::Swap => ("swap", Form::Frames, "the frame changes places with the next"),
            Self::Late => (
                "late",
                Form::FramesAndSeconds,
                "the frame comes so long after its turn; nothing waits for it",
            ),
            Self::WrongSeries => ("wrong-series", Form::Frames, "the frame names another series (DECTRIS)"),
            Self::WrongShape => ("wrong-shape", Form::Frames, "the frame has half of its rows"),
            Self::Truncate => ("truncate", Form::Frames, "half of the pixel data is missing"),
            Self::Corrupt => ("corrupt", Form::Frames, "the message is noise that cannot be read"),
            Self::NoEnd => ("no-end", Form::Nothing, "the end of the series is not told"),
            Self::EarlyEnd => ("early-end", Form::Frame, "the end of the series is told before the frame"),
            Self::Disconnect => ("disconnect", Form::Frames, "all connections are closed after the frame"),
            Self::Stall => ("stall", Form::FramesAndSeconds, "nothing is sent for so long before the frame"),
        }
    }

    /// The word that stands for the fault on the command line.
    pub const fn name(self) -> &'static str {
        self.describe().0
    }

    /// Whether a protocol can show the fault.
    const fn fits(self, protocol: Protocol) -> bool {
        match self {
            Self::WrongSeries => protocol.numbers_series(),
            Self::NoEnd | Self::EarlyEnd => protocol.has_series(),
            _ => true,
        }
    }
}

/// Why a list of faults was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// No fault has this name.
    #[error("unknown fault '{found}', expected one of {known}")]
    Unknown {
        /// The name.
        found: String,
        /// The names that there are.
        known: String,
    },
    /// A fault has another form.
    #[error("fault '{name}' takes {expected}, found '{found}'")]
    Value {
        /// The name of the fault.
        name: &'static str,
        /// What should follow.
        expected: &'static str,
        /// What follows.
        found: String,
    },
    /// The protocol has nothing that could go wrong in this way.
    #[error("fault '{name}' cannot be shown by {protocol}: {why}")]
    Protocol {
        /// The name of the fault.
        name: &'static str,
        /// The protocol.
        protocol: &'static str,
        /// What the protocol lacks.
        why: &'static str,
    },
}

/// When one kind of fault strikes.
#[derive(Debug, Clone, Default, PartialEq)]
struct Fault {
    frames: Vec<RangeInclusive<u64>>,
    /// Probability for every frame.
    rate: f64,
    secs: f64,
}

/// The faults of a simulated detector.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    seed: u64,
    faults: Vec<(FaultKind, Fault)>,
}

impl Faults {
    /// Whether `kind` strikes projection `number`, in repetition `repetition` of the scan.
    pub(crate) fn strikes(&self, kind: FaultKind, number: u64, repetition: u64) -> bool {
        self.find(kind).is_some_and(|fault| {
            let purpose = repetition << 8 | kind as u64;
            fault.frames.iter().any(|range| range.contains(&number))
                || Random::new(self.seed, purpose, number).uniform() < fault.rate
        })
    }

    /// Whether `kind` is asked for at all.
    pub(crate) fn has(&self, kind: FaultKind) -> bool {
        self.find(kind).is_some()
    }

    /// The seconds that belong to `kind`.
    pub(crate) fn secs(&self, kind: FaultKind) -> f64 {
        self.find(kind).map_or(0.0, |fault| fault.secs)
    }

    /// Checks that a protocol can show all faults.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check(&self, protocol: Protocol) -> Result<(), FaultError> {
        match self.faults.iter().find(|(kind, _)| !kind.fits(protocol)) {
            None => Ok(()),
            Some((kind, _)) => Err(FaultError::Protocol {
                name: kind.name(),
                protocol: protocol.name(),
                why: if protocol.has_series() { "frames name no series" } else { "it has no end message" },
            }),
        }
    }

    /// A text for people that lists all faults.
    pub fn help() -> String {
        let line = |(name, form, what): (&str, Form, &str)| {
            let word = format!("{name}{}", form.suffix());
            format!("  {word:<26} {what}\n")
        };
        let lines: String = FaultKind::ALL.map(FaultKind::describe).map(line).concat();
        format!(
            "Faults (--faults), separated by semicolons. Frames are counted from 0 among the projections, as\n\
             3,17,20-25, or struck at random with a rate as 1%; darks and flats are spared.\n\
             {lines}  {:<26} other frames for rates",
            format!("{SEED}=N")
        )
    }

    fn find(&self, kind: FaultKind) -> Option<&Fault> {
        self.faults.iter().find(|(one, _)| *one == kind).map(|(_, fault)| fault)
    }
}

impl FromStr for Faults {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let mut faults = Self::default();
        for word in text.split(';').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let (name, value) = (name.trim(), value.trim());
            if name == SEED {
                faults.seed = value.parse().map_err(|_not_a_number| FaultError::Value {
                    name: SEED,
                    expected: "a whole number",
                    found: value.to_owned(),
                })?;
                continue;
            }
            let Some(kind) = FaultKind::ALL.into_iter().find(|kind| kind.name() == name) else {
                let known = FaultKind::ALL.map(FaultKind::name).join(", ");
                return Err(FaultError::Unknown {
                    found: name.to_owned(),
                    known: format!("{known}, {SEED}"),
                });
            };
            let (name, form, _) = kind.describe();
            let refused = || FaultError::Value { name, expected: form.describe(), found: value.to_owned() };
            faults.faults.push((kind, parse_fault(form, value).ok_or_else(refused)?));
        }
        Ok(faults)
    }
}

/// The word that sets the seed.
const SEED: &str = "seed";

fn parse_fault(form: Form, value: &str) -> Option<Fault> {
    match form {
        Form::Nothing => value.is_empty().then(Fault::default),
        Form::Frame => {
            let number: u64 = value.parse().ok()?;
            Some(Fault { frames: vec![number..=number], ..Fault::default() })
        }
        Form::Frames => parse_frames(value),
        Form::FramesAndSeconds => {
            let (frames, secs) = value.split_once(':')?;
            let secs: f64 = secs.parse().ok()?;
            // A day is more than any test waits, and keeps clocks from overflowing.
            (0.0..=86_400.0).contains(&secs).then_some(())?;
            Some(Fault { secs, ..parse_frames(frames)? })
        }
    }
}

/// `3,17,20-25` or `1%`.
fn parse_frames(value: &str) -> Option<Fault> {
    if let Some(percent) = value.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().ok()?;
        return (0.0..=100.0).contains(&percent).then(|| Fault { rate: percent / 100.0, ..Fault::default() });
    }
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    let frames = value.split(',').map(range).collect::<Option<Vec<RangeInclusive<u64>>>>()?;
    frames.iter().all(|range| !range.is_empty()).then(|| Fault { frames, ..Fault::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn struck(faults: &Faults, kind: FaultKind, count: u64) -> Vec<u64> {
        (0..count).filter(|&n| faults.strikes(kind, n, 0)).collect()
    }

    #[test]
    fn every_fault_of_a_long_list_is_understood() {
        let text = "lose=3,17;double=5;swap=10;late=20:2.5;wrong-series=4;wrong-shape=6;truncate=7;corrupt=8;\
                    no-end;early-end=30;disconnect=50-52;stall=40:3;seed=1";
        let faults: Faults = text.parse().unwrap();
        assert_eq!(struck(&faults, FaultKind::Lose, 60), [3, 17]);
        assert_eq!(struck(&faults, FaultKind::Disconnect, 60), [50, 51, 52]);
        assert_eq!(struck(&faults, FaultKind::EarlyEnd, 60), [30]);
        assert_eq!(faults.secs(FaultKind::Late), 2.5);
        assert!(FaultKind::ALL.iter().all(|kind| faults.has(*kind)));
    }

    #[test]
    fn rates_strike_about_as_often_and_always_the_same() {
        let faults: Faults = "lose=5%; double=5%; seed=7".parse().unwrap();
        let lost = struck(&faults, FaultKind::Lose, 10_000);
        assert!((400..600).contains(&lost.len()), "{}", lost.len());
        assert_eq!(lost, struck(&faults.clone(), FaultKind::Lose, 10_000));
        assert_ne!(lost, struck(&faults, FaultKind::Double, 10_000));
        let again = (0..10_000).filter(|&n| faults.strikes(FaultKind::Lose, n, 1));
        assert_ne!(lost, again.collect::<Vec<_>>());
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Faults>().unwrap_err().to_string();
        let unknown = error("loose=3");
        assert!(unknown.starts_with("unknown fault 'loose', expected one of lose, double,"), "{unknown}");
        assert_eq!(
            error("late=20"),
            "fault 'late' takes frames or a rate, and seconds, as 20:2.5 or 1%:2.5, found '20'"
        );
        for text in
            ["lose", "lose=x", "lose=101%", "lose=9-3", "no-end=1", "early-end=1,2", "stall=1:nan", "seed=-1"]
        {
            assert!(text.parse::<Faults>().is_err(), "{text}");
        }
        assert_eq!("".parse::<Faults>().unwrap(), Faults::default());
    }

    #[test]
    fn faults_that_a_protocol_cannot_show_are_refused() {
        let faults: Faults = "wrong-series=1".parse().unwrap();
        assert!(faults.check(Protocol::DectrisV2).is_ok());
        assert_eq!(
            faults.check(Protocol::Concert).unwrap_err().to_string(),
            "fault 'wrong-series' cannot be shown by concert: frames name no series"
        );
        assert!("no-end".parse::<Faults>().unwrap().check(Protocol::Array).is_err());
    }

    #[test]
    fn help_explains_every_fault() {
        let help = Faults::help();
        assert!(FaultKind::ALL.iter().all(|kind| help.contains(kind.name())));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z=;:,%0-9. -]{0,40}") {
            drop(text.parse::<Faults>());
        }
    }
}
