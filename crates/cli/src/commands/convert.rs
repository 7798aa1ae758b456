//! `convert`: a file of one kind as one of another.

use beamstream::ConvertOptions;

use crate::args::ConvertArgs;
use crate::console::Console;
use crate::failure::Failure;

pub(super) fn convert(args: &ConvertArgs, console: &Console) -> Result<(), Failure> {
    let options = ConvertOptions {
        input: args.input.clone(),
        out: args.out.clone(),
        overwrite: args.overwrite,
        places: args.places.options(),
    };
    let done = beamstream::convert(&options)?;
    for warning in &done.warnings {
        console.warn(warning);
    }
    let [count, rows, columns] = done.shape;
    let what = if done.is_scan { "frames" } else { "slices" };
    console.say(&format!("{}: {count} {what} of {rows} x {columns}", args.out.display()));
    Ok(())
}
