//! `beamstream`: live tomography on the command line.

mod args;
mod commands;
mod console;
mod drive;
mod failure;
mod figures;
mod parse;
mod side_files;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, LogFormat};
use crate::console::Console;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let console = Console::start(&cli.global);
    match commands::run(&cli.command, &console) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            console.fail(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// Tells help, the version, or what is wrong with the arguments.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && wants_json_log(std::env::args()) {
        console::json_line("ERROR", error.render().to_string().trim_end());
    } else {
        // Where the terminal is gone nobody reads it.
        error.print().ok();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Whether the log is to be JSON, though the arguments cannot be parsed.
fn wants_json_log(arguments: impl Iterator<Item = String>) -> bool {
    let json = LogFormat::Json.name();
    let arguments: Vec<String> = arguments.collect();
    arguments.windows(2).any(|pair| pair[0] == "--log-format" && pair[1] == json)
        || arguments.iter().any(|argument| argument.strip_prefix("--log-format=") == Some(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_log_is_known_before_arguments_are_parsed() {
        let wants = |line: &str| wants_json_log(line.split(' ').map(str::to_owned));
        assert!(wants("beamstream recon --log-format json --nonsense"));
        assert!(wants("beamstream --log-format=json recom"));
        assert!(!wants("beamstream --log-format text --json"));
    }
}
