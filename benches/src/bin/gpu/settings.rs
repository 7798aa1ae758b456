//! What is measured, on which sizes.

use std::path::PathBuf;

use beamstream::Device;

use crate::scan::Extent;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    FirstSlice,
    Quality,
    Direct,
    Computation,
    Live,
    Sustained,
    Upload,
    Again,
    Planes,
    Headline,
    Integers,
    Wide,
}

impl Section {
    /// All of them, such that neighbours can use the same scan.
    const ALL: [Self; 12] = [
        Self::FirstSlice,
        Self::Quality,
        Self::Direct,
        Self::Computation,
        Self::Live,
        Self::Sustained,
        Self::Upload,
        Self::Again,
        Self::Planes,
        Self::Headline,
        Self::Integers,
        Self::Wide,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FirstSlice => "first-slice",
            Self::Quality => "quality",
            Self::Direct => "direct",
            Self::Computation => "computation",
            Self::Live => "live",
            Self::Sustained => "sustained",
            Self::Upload => "upload",
            Self::Again => "again",
            Self::Planes => "planes",
            Self::Headline => "headline",
            Self::Integers => "integers",
            Self::Wide => "wide",
        }
    }
}

pub(crate) const HELP: &str = "\
gpu [OPTIONS] [SECTION]...

Sections, all by default (what the hardware itself can do is measured always):
  first-slice   process start to the first slice, without and with cached kernels
  quality       accuracy against the truth and against the CPU
  direct        backprojection, alone
  computation   the volume from projections on the device, nothing copied
  live          last frame to volume
  sustained     projections a second with the volume kept up to date
  upload        frames to the device through the engine
  again         chosen slices and the volume with a moved axis, from kept projections
  planes        three slices of any orientation from stored projections
  headline      the volume from host to host through the engine, f32
  integers      the same, u16
  wide          the volume of a wider detector

Options:
  --columns N   detector columns, 2048     --rows N      detector rows, 2048
  --angles N    projections, 1800          --repeats N   runs after the one that warms up, 5
  --copies N    symmetry of the phantom, even, divides twice the projections, 8
  --bands N     passes over the rows, divides them, 8
  --device D    auto, cpu or cuda:N        --out FOLDER  where gpu-bench.md and .json go, .
  --commit C    what the results say of the program
  --trace FILE  a trace of the last pipeline that ran, for Perfetto
  --small       sizes that take seconds, for trying out";

/// What the command line says.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) extent: Extent,
    pub(crate) repeats: u64,
    pub(crate) device: Device,
    pub(crate) out: PathBuf,
    pub(crate) commit: String,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) sections: Vec<Section>,
    /// The command line, for the results.
    pub(crate) command: String,
}

impl Settings {
    /// Reads the command line; `None` if help is wanted.
    pub(crate) fn parse(arguments: &[String]) -> Result<Option<Self>, String> {
        let mut settings = Self {
            extent: Extent { columns: 2048, rows: 2048, angles: 1800, copies: 8, bands: 8 },
            repeats: 5,
            device: Device::Cuda(vec![0]),
            out: PathBuf::from("."),
            commit: String::from("unknown"),
            trace: None,
            sections: Vec::new(),
            command: command(arguments),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &String| {
                let number = text.parse().ok().filter(|number: &usize| *number > 0);
                number.ok_or_else(|| format!("{word}: expected a number above 0, found '{text}'"))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--small" => {
                    settings.extent = Extent { columns: 256, rows: 64, angles: 180, copies: 4, bands: 4 };
                }
                "--columns" => settings.extent.columns = number(value()?)?,
                "--rows" => settings.extent.rows = number(value()?)?,
                "--angles" => settings.extent.angles = number(value()?)?,
                "--copies" => settings.extent.copies = number(value()?)?,
                "--bands" => settings.extent.bands = number(value()?)?,
                "--repeats" => settings.repeats = number(value()?)? as u64,
                "--device" => {
                    settings.device = value()?.parse().map_err(|error| format!("--device: {error}"))?;
                }
                "--out" => settings.out = PathBuf::from(value()?),
                "--trace" => settings.trace = Some(PathBuf::from(value()?)),
                "--commit" => settings.commit.clone_from(value()?),
                name => {
                    let section = Section::ALL.into_iter().find(|section| section.name() == name);
                    settings
                        .sections
                        .push(section.ok_or_else(|| format!("no section or option is named '{name}'"))?);
                }
            }
        }
        if settings.sections.is_empty() {
            settings.sections = Section::ALL.to_vec();
        }
        settings.extent.check()?;
        Ok(Some(settings))
    }
}

/// The command line without what says nothing of the figures: where they go, and what the program was made of.
fn command(arguments: &[String]) -> String {
    let mut words = arguments.iter();
    let mut command = String::from("gpu");
    while let Some(word) = words.next() {
        if ["--out", "--commit"].contains(&word.as_str()) {
            words.next();
        } else {
            command.push(' ');
            command.push_str(word);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tells_of_the_figures_alone() {
        let arguments = ["--out", "x", "--repeats", "7", "live", "--commit", "c"].map(str::to_owned);
        let settings = Settings::parse(&arguments).unwrap().unwrap();
        assert_eq!((settings.command.as_str(), settings.repeats), ("gpu --repeats 7 live", 7));
        assert!(Settings::parse(&["--copies".to_owned(), "7".to_owned()]).unwrap_err().contains("--copies"));
    }
}
