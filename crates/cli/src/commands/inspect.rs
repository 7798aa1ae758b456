//! `inspect`: what is in a file.

use std::fmt::Write;

use beamstream::{Inspection, show_bytes};

use crate::args::InspectArgs;
use crate::console::Console;
use crate::failure::Failure;

/// Most datasets that are listed for people; `--json` lists all.
const MAX_DATASETS: usize = 40;

pub(super) fn inspect(args: &InspectArgs, console: &Console) -> Result<(), Failure> {
    let told = beamstream::inspect(&args.file, &args.places.options())?;
    if args.json { console.print_json(&told) } else { console.print(&text(&told)) }
}

/// For people.
fn text(told: &Inspection) -> String {
    let mut text = String::new();
    let kind = told.kind.map_or_else(|| "no scan by itself".to_owned(), |kind| format!("{kind} scan"));
    let mut line = |name: &str, value: String| {
        // Writing into a text cannot fail.
        writeln!(text, "  {name:<12}{value}").ok();
    };
    if let Some(frames) = &told.frames {
        let [count, rows, columns] = frames.shape;
        line("frames", format!("{count} of {rows} rows x {columns} columns, {}", frames.element));
        let mut roles =
            format!("{} projections, {} flats, {} darks", frames.projections, frames.flats, frames.darks);
        if frames.invalid > 0 {
            write!(roles, ", {} invalid", frames.invalid).ok();
        }
        line("roles", roles);
        if let Some([first, last]) = frames.angle_range_deg {
            line("angles", format!("{first:.1} to {last:.1} degrees"));
        }
    }
    if let Some(metres) = told.pixel_size_m {
        line("pixel size", format!("{:.4} um", metres * 1e6));
    }
    if let Some(recon) = &told.recon {
        let [z, y, x] = recon.shape;
        line("recon gives", format!("{z} slices of {y} x {x}, {} as f32", show_bytes(recon.volume_bytes)));
    }
    if let Some(why) = &told.no_scan_because {
        line("why", why.clone());
    }
    for warning in &told.warnings {
        line("note", warning.clone());
    }
    for dataset in told.datasets.iter().filter(|dataset| !dataset.path.is_empty()).take(MAX_DATASETS) {
        let filters = if dataset.filters.is_empty() {
            String::new()
        } else {
            format!(", {}", dataset.filters.join(" "))
        };
        line("dataset", format!("{} {} {:?}{filters}", dataset.path, dataset.element, dataset.shape));
    }
    if told.datasets.len() > MAX_DATASETS {
        line("", format!("and {} more", told.datasets.len() - MAX_DATASETS));
    }
    format!("{}: {kind}\n{text}", told.path.display())
}
