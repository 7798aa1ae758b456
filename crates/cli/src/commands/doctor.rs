//! `doctor`: what this machine has, what is missing, and what that costs.

mod gpu;
mod probe;

use std::fmt::Write;

use serde::Serialize;

use crate::args::DoctorArgs;
use crate::console::Console;
use crate::failure::Failure;

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// As it should be.
    Good,
    /// Works, with less than there could be.
    Limited,
    /// Not there.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    /// What was looked at.
    name: &'static str,
    /// How it is to be taken.
    state: State,
    /// What was found.
    found: String,
    /// What is lost by it.
    costs: Option<&'static str>,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Good, found: found.into(), costs: None }
    }

    fn limited(name: &'static str, found: impl Into<String>, costs: &'static str) -> Self {
        Self { name, state: State::Limited, found: found.into(), costs: Some(costs) }
    }

    fn missing(name: &'static str, found: impl Into<String>, costs: &'static str) -> Self {
        Self { name, state: State::Missing, found: found.into(), costs: Some(costs) }
    }
}

pub(super) fn doctor(args: &DoctorArgs, console: &Console) -> Result<(), Failure> {
    let findings = probe::all();
    if args.json { console.print_json(&findings) } else { console.print(&text(&findings)) }
}

/// For people.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { name, state, found, costs } in findings {
        let mark = match state {
            State::Good => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        writeln!(text, "{mark:<9}{name:<14}{found}").ok();
        if let Some(costs) = costs {
            writeln!(text, "{:23}-> {costs}", "").ok();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_good_says_what_it_costs() {
        let findings = probe::all();
        assert!(findings.iter().any(|finding| finding.name == "gpu"));
        for finding in findings {
            assert_eq!(finding.state == State::Good, finding.costs.is_none(), "{finding:?}");
        }
    }
}
