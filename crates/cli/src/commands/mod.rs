//! The commands, one file each.

mod check;
mod convert;
mod demo;
mod doctor;
mod find_axis;
mod inspect;
mod nodes;
mod recon;
mod replay;
mod run;

use clap::CommandFactory;

use crate::args::{Cli, Command};
use crate::console::Console;
use crate::failure::Failure;

/// Carries a command out; gives the exit code.
///
/// # Errors
/// [`Failure`] if it ends early.
pub(crate) fn run(command: &Command, console: &Console) -> Result<u8, Failure> {
    match command {
        Command::Demo(args) => demo::demo(args, console),
        Command::Run(args) => run::run(args, console),
        Command::Launch(args) => run::launch(args, console),
        Command::Replay(args) => replay::replay(args, console),
        Command::Recon(args) => recon::recon(args, console),
        Command::Convert(args) => convert::convert(args, console).map(|()| 0),
        Command::FindAxis(args) => find_axis::find_axis(args, console).map(|()| 0),
        Command::Inspect(args) => inspect::inspect(args, console).map(|()| 0),
        Command::Nodes(args) => nodes::nodes(args, console).map(|()| 0),
        Command::Schema => console.print_json(&beamstream::schema(&beamstream::registry())).map(|()| 0),
        Command::Check(args) => check::check(args, console).map(|()| 0),
        Command::Explain(args) => check::explain(args, console).map(|()| 0),
        Command::Doctor(args) => doctor::doctor(args, console).map(|()| 0),
        Command::Completions { shell } => completions(*shell, console).map(|()| 0),
    }
}

fn completions(shell: clap_complete::Shell, console: &Console) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "beamstream", &mut script);
    console.print(&String::from_utf8_lossy(&script))
}
