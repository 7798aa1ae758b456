//! `find-axis`: the rotation axis of a recorded scan.

use beamstream::{Error, Options, Scan};

use crate::args::FindAxisArgs;
use crate::console::Console;
use crate::failure::Failure;

pub(super) fn find_axis(args: &FindAxisArgs, console: &Console) -> Result<(), Failure> {
    let mut scan = Scan::open(&args.scan, &args.places.options()).map_err(Error::from)?;
    let Some(found) = beamstream::find_axis(&mut scan, args.row, &Options::default())? else {
        let text = format!("{}: no two projections are half a turn apart", args.scan.display());
        return Err(Failure::usage(text));
    };
    if args.json {
        return console.print_json(&found);
    }
    if !found.is_trustworthy() {
        console.warn("do not rely on it: reconstruct a slice and look");
    }
    let [one, other] = found.angles_deg;
    console.print(&format!(
        "{:.2} px, confidence {:.2}, from the projections at {one:.1} and {other:.1} degrees",
        found.rotation_axis_px, found.confidence
    ))
}
