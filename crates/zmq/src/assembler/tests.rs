//! Cases solved by hand, with a simulated clock.

use std::time::Duration;

use beamstream_codec::Compression;
use beamstream_core::{AngleRule, ElementType, RoleCounts, Shape};
use proptest::prelude::*;

use super::*;
use crate::protocol::{DecodeError, Payload};

/// An assembler, its clock, and what it asked for.
struct Run {
    assembler: Assembler,
    now: Instant,
    begun: Vec<SeriesHeader>,
    frames: Vec<Ticket>,
    ended: Vec<SeriesSummary>,
    warnings: Vec<String>,
    /// Whether payloads decode.
    good: bool,
}

const SHAPE: Shape = Shape::new(2, 3);

impl Run {
    fn new(rules: Rules) -> Self {
        let now = Instant::now();
        Self {
            assembler: Assembler::new(rules, now),
            now,
            begun: Vec::new(),
            frames: Vec::new(),
            ended: Vec::new(),
            warnings: Vec::new(),
            good: true,
        }
    }

    fn work(&mut self) {
        while let Some(action) = self.assembler.next_action() {
            match action {
                Action::Begin(header) => {
                    assert_eq!(self.begun.len(), self.ended.len(), "one series at a time");
                    self.begun.push(*header);
                }
                Action::Frame(ticket) => {
                    assert_eq!(self.begun.len(), self.ended.len() + 1, "frames come within a series");
                    let outcome = if self.good { Ok(()) } else { Err("damaged".to_owned()) };
                    self.assembler.filled(&ticket, outcome);
                    if self.good {
                        self.frames.push(ticket);
                    }
                }
                Action::End(summary) => self.ended.push(*summary),
                Action::Warn(text) => self.warnings.push(text),
            }
        }
    }

    fn receive(&mut self, message: Result<Incoming, Refusal>, peer: u64) {
        self.assembler.receive(message, peer, self.now);
        self.work();
    }

    fn send(&mut self, message: Incoming) {
        self.receive(Ok(message), 0);
    }

    fn wait(&mut self, secs: f64) {
        self.now += Duration::from_secs_f64(secs);
        self.assembler.poll(self.now);
        self.work();
    }

    fn images(&mut self, series: Option<u64>, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.send(image(series, Some(number)));
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.frames.iter().map(|ticket| ticket.meta.frame.number).collect()
    }

    /// The account of the detector's series `number`.
    fn counts(&self, number: u64) -> FrameCounts {
        let entry = self.assembler.entries.values().find(|entry| entry.id.number == number);
        entry.map(|entry| entry.ledger.counts()).unwrap()
    }
}

fn header(series: u64, frames: u64) -> Start {
    Start { series: Some(series), expected_frames: Some(frames), ..Start::default() }
}

fn start(series: u64, frames: u64) -> Incoming {
    Incoming::Start(Box::new(header(series, frames)))
}

fn plain(series: Option<u64>, number: Option<u64>) -> Image {
    let payload = Payload { part: 0, bytes: 0..12, compression: Compression::None, big_endian: false };
    Image::new(series, number, ElementType::U16, SHAPE, payload)
}

fn image(series: Option<u64>, number: Option<u64>) -> Incoming {
    Incoming::Image(Box::new(plain(series, number)))
}

fn end(series: u64) -> Incoming {
    Incoming::End { series: Some(series) }
}

#[test]
fn all_frames_end_a_series_without_end_message() {
    let mut run = Run::new(Rules { max_series: Some(1), ..Rules::default() });
    run.send(start(7, 3));
    assert!(run.begun.is_empty(), "begun with the first frame, not before");
    run.images(Some(7), [1, 0]);
    assert_eq!((run.begun[0].id.number, run.begun[0].expected_frames), (7, Some(3)));
    assert!(!run.assembler.is_finished());
    run.images(Some(7), [2]);
    assert!(run.assembler.is_finished() && run.ended[0].is_complete());
    assert_eq!(run.numbers(), [1, 0, 2]);
}

#[test]
fn the_end_waits_for_missing_frames_within_its_grace() {
    let mut run = Run::new(Rules::default());
    run.send(start(7, 3));
    run.images(Some(7), [0, 1]);
    run.send(end(7));
    run.wait(0.4);
    assert!(run.ended.is_empty());
    run.images(Some(7), [2]);
    assert!(run.ended[0].is_complete());

    run.send(start(8, 3));
    run.images(Some(8), [0, 1]);
    run.send(end(8));
    run.wait(0.6);
    assert_eq!(run.ended[1].counts.lost_ranges, [[2, 2]]);
}

#[test]
fn silence_closes_a_series() {
    let mut run = Run::new(Rules { max_series: Some(1), ..Rules::default() });
    run.send(start(7, 100));
    run.images(Some(7), [0]);
    run.wait(29.0);
    run.images(Some(7), [1]);
    run.wait(29.0);
    assert!(run.ended.is_empty());
    run.wait(1.5);
    assert_eq!(run.ended[0].counts.lost, 98);
    assert!(run.assembler.is_finished() && run.warnings[0].contains("series_timeout_secs"));
}

#[test]
fn a_header_and_an_end_are_a_series_of_lost_frames() {
    let mut run = Run::new(Rules { max_series: Some(1), ..Rules::default() });
    run.send(start(7, 40));
    run.send(end(7));
    run.wait(0.6);
    assert!(run.begun.is_empty() && run.ended.is_empty() && run.assembler.is_finished());
    assert_eq!((run.counts(7).received, run.counts(7).lost), (0, 40));
}

#[test]
fn the_next_header_closes_a_series() {
    let mut run = Run::new(Rules::default());
    run.send(start(6, 5));
    run.images(Some(6), 0..3);
    run.send(start(7, 2));
    assert_eq!(run.ended[0].counts.lost, 2);
    run.images(Some(6), [3]);
    assert_eq!(run.counts(6).late, 1, "counted, not mixed into series 7");
    run.images(Some(7), 0..2);
    assert!(run.ended[1].is_complete());
}

#[test]
fn strays_are_counted_under_their_own_number() {
    let mut run = Run::new(Rules::default());
    run.images(Some(8), 3..6);
    run.send(end(8));
    run.send(start(9, 2));
    run.images(Some(9), [0]);
    run.images(Some(99), [1]);
    run.images(Some(9), [1]);
    assert!(run.ended[0].is_complete() && run.frames.len() == 2);
    assert_eq!((run.counts(8).received, run.counts(8).rejected), (3, 3));
    assert_eq!(run.counts(99).received, 1);
}

#[test]
fn strays_before_their_header_join_its_account() {
    let mut run = Run::new(Rules::default());
    run.images(Some(9), 0..2);
    run.send(start(9, 4));
    run.images(Some(9), 2..4);
    run.send(end(9));
    run.wait(0.6);
    let counts = run.counts(9);
    assert_eq!((counts.received, counts.rejected, counts.processed, counts.lost), (4, 2, 2, 2));
}

#[test]
fn doubles_and_strange_numbers_are_counted() {
    let mut run = Run::new(Rules::default());
    run.send(start(7, 4));
    run.images(Some(7), [0, 1, 1, 4_000_000_000, 2]);
    run.send(Incoming::Image(Box::new(Image { shape: Shape::new(4, 4), ..plain(Some(7), Some(3)) })));
    run.images(Some(7), [3]);
    let counts = &run.ended[0].counts;
    assert_eq!(
        (counts.received, counts.processed, counts.duplicate, counts.rejected, counts.lost),
        (7, 4, 1, 2, 0)
    );
    assert_eq!(run.numbers(), [0, 1, 2, 3]);
}

#[test]
fn a_damaged_frame_is_rejected_until_a_good_copy_comes() {
    let mut run = Run::new(Rules::default());
    run.send(start(7, 2));
    run.good = false;
    run.images(Some(7), [0]);
    run.good = true;
    let refusal =
        Refusal { series: Some(7), number: Some(1), is_frame: true, error: DecodeError::Incomplete };
    run.receive(Err(refusal), 0);
    assert_eq!((run.counts(7).rejected, run.counts(7).lost), (2, 0));
    run.images(Some(7), [0, 1]);
    assert!(run.ended[0].is_complete());
}

#[test]
fn a_repeated_number_is_a_new_series_after_frames_or_after_the_end() {
    let mut run = Run::new(Rules::default());
    for _ in 0..2 {
        run.send(start(1, 2));
        run.images(Some(1), 0..2);
    }
    run.send(start(1, 2));
    run.images(Some(1), [0]);
    run.send(start(1, 2)); // restarted in the middle
    run.images(Some(1), 0..2);
    let lost: Vec<u64> = run.ended.iter().map(|summary| summary.counts.lost).collect();
    assert_eq!(lost, [0, 0, 1, 0]);
    let ordinals: Vec<u64> = run.begun.iter().map(|header| header.id.ordinal).collect();
    assert_eq!(ordinals, [0, 1, 2, 3]);
}

#[test]
fn a_header_on_every_socket_is_one_header() {
    let mut run = Run::new(Rules::default());
    run.send(start(1, 3));
    run.images(Some(1), [0]);
    run.receive(Ok(start(1, 3)), 1);
    run.images(Some(1), [1, 2]);
    assert_eq!((run.ended.len(), run.ended[0].is_complete()), (1, true));
    run.send(start(2, 1));
    run.send(start(2, 1)); // armed twice
    run.images(Some(2), [0]);
    assert_eq!(run.ended.len(), 2);
    assert!(run.ended[1].is_complete());
}

#[test]
fn a_stream_without_header_may_begin_anywhere_and_ends_by_silence() {
    let rule = AngleRule::from_degrees(10.0, 2.0);
    let angles = AngleTable { rule: Some(rule), ..AngleTable::default() };
    let mut run = Run::new(Rules { max_series: Some(1), angles, ..Rules::default() });
    run.images(None, 1000..1005);
    run.wait(31.0);
    assert!(run.assembler.is_finished() && run.ended[0].is_complete());
    assert_eq!(run.begun[0].id.number, 0);
    let angles: Vec<f64> =
        run.frames.iter().map(|t| t.meta.angle_rad.unwrap().to_degrees().round()).collect();
    assert_eq!(angles, [10.0, 12.0, 14.0, 16.0, 18.0]);
}

#[test]
fn a_counter_that_starts_again_begins_the_next_series() {
    let mut run = Run::new(Rules::default());
    run.images(None, [0, 1, 2, 1]);
    assert_eq!(run.counts(0).duplicate, 1);
    run.images(None, 0..2);
    assert_eq!((run.ended.len(), run.frames.len()), (1, 5));
}

#[test]
fn frames_without_numbers_are_counted_on_arrival() {
    let roles = vec![Role::Dark, Role::Projection];
    let mut run = Run::new(Rules { series_roles: roles, max_series: Some(1), ..Rules::default() });
    for frames in [2, 3] {
        (0..frames).for_each(|_| run.send(image(None, None)));
        run.send(Incoming::End { series: None });
    }
    let seen: Vec<_> =
        run.frames.iter().map(|t| (t.meta.role, t.meta.frame.number, t.meta.projection)).collect();
    let (dark, projection) = (Role::Dark, Role::Projection);
    assert_eq!(
        seen,
        [(dark, 0, 0), (dark, 1, 0), (projection, 0, 0), (projection, 1, 1), (projection, 2, 2)]
    );
    assert!(run.assembler.is_finished(), "the darks do not count");
}

#[test]
fn each_role_may_be_counted_from_zero() {
    let mut run = Run::new(Rules::default());
    for (role, number) in [(Role::Dark, 0), (Role::Flat, 0), (Role::Projection, 0), (Role::Projection, 1)] {
        let counted = Image { role: Some(role), counted_by_role: true, ..plain(None, Some(number)) };
        run.send(Incoming::Image(Box::new(counted)));
    }
    assert_eq!((run.counts(0).processed, run.counts(0).duplicate), (4, 0));
    assert_eq!(run.frames[3].meta.projection, 1);
}

#[test]
fn roles_by_number_leave_the_angles_to_projections() {
    let roles = vec![(Role::Dark, "0:2".parse().unwrap()), (Role::Flat, "2:3".parse().unwrap())];
    let angles = AngleTable { table_rad: Some(vec![0.1, 0.2, 0.3].into()), ..AngleTable::default() };
    let mut run = Run::new(Rules { roles, angles, ..Rules::default() });
    run.send(start(1, 6));
    run.images(Some(1), [0, 1, 2, 4, 3, 5]);
    let seen: Vec<_> = run.frames.iter().map(|t| (t.meta.role.image_key(), t.meta.angle_rad)).collect();
    let expected = [(2, None), (2, None), (1, None), (0, Some(0.2)), (0, Some(0.1)), (0, Some(0.3))];
    assert_eq!(seen, expected);
    assert_eq!(run.begun[0].angles_rad.as_deref(), Some([0.1, 0.2, 0.3].as_slice()));
    let roles = RoleCounts { darks: 2, flats: 1, projections: 3, references_first: true };
    assert_eq!(run.begun[0].roles, Some(roles));
}

#[test]
fn message_angles_win_unless_overridden() {
    let with_rule = |wins| {
        let rule = Some(AngleRule { start_rad: 5.0, step_rad: 1.0 });
        let mut run =
            Run::new(Rules { angles: AngleTable { table_rad: None, rule, wins }, ..Rules::default() });
        let angles = Some(AngleRule { start_rad: 0.0, step_rad: 0.5 });
        run.send(Incoming::Start(Box::new(Start { angles, ..header(1, 2) })));
        run.images(Some(1), [1]);
        run.send(Incoming::Image(Box::new(Image { angle_rad: Some(0.25), ..plain(Some(1), Some(0)) })));
        let frames: Vec<f64> = run.frames.iter().map(|t| t.meta.angle_rad.unwrap()).collect();
        (frames, run.begun[0].angles_rad.as_ref().unwrap().to_vec())
    };
    assert_eq!(with_rule(false), (vec![0.5, 0.25], vec![0.0, 0.5]));
    assert_eq!(with_rule(true), (vec![6.0, 5.0], vec![5.0, 6.0]));
}

#[test]
fn a_monstrous_header_costs_nothing() {
    let mut run = Run::new(Rules::default());
    let angles = Some(AngleRule { start_rad: 0.0, step_rad: 0.5 });
    run.send(Incoming::Start(Box::new(Start { angles, ..header(1, u64::MAX) })));
    run.images(Some(1), [0]);
    assert!(run.begun[0].angles_rad.is_none());
    assert_eq!(run.frames[0].meta.angle_rad, Some(0.0));
}

#[test]
fn a_stop_by_the_user_is_said() {
    let mut run = Run::new(Rules::default());
    run.send(start(1, 3));
    run.images(Some(1), [0]);
    run.assembler.abort();
    run.work();
    assert!(run.ended[0].aborted && !run.ended[0].is_complete());
}

#[test]
fn thousands_of_series_are_told_apart() {
    let mut run = Run::new(Rules::default());
    for series in 0..3000 {
        run.send(start(series, 1));
        run.images(Some(series), [0]);
    }
    for series in 10_000..11_000 {
        run.images(Some(series), [0]);
    }
    assert_eq!(run.ended.len(), 3000);
    assert!(run.assembler.entries.len() <= 3000 + MAX_STRAYS);
    let received: u64 = run.assembler.take_changed().iter().map(|account| account.counts.received).sum();
    assert_eq!(received, 4000);
    assert!(run.assembler.take_changed().is_empty());
}

proptest! {
    /// Whatever comes in whatever order: begin and end alternate, and every frame is accounted for.
    #[test]
    fn every_frame_is_accounted_for(events in proptest::collection::vec((0_u8..7, 0_u64..4, 0_u64..6, 0_u64..2), 0..120)) {
        let mut run = Run::new(Rules::default());
        let mut sent = 0;
        for (kind, series, number, peer) in events {
            run.good = kind != 1;
            match kind {
                0 => run.receive(Ok(start(series, 5)), peer),
                5 => run.receive(Ok(end(series)), peer),
                6 => run.wait(0.3),
                _ => {
                    sent += 1;
                    run.receive(Ok(image(Some(series), Some(number))), peer);
                }
            }
        }
        run.assembler.abort();
        run.work();
        prop_assert_eq!(run.begun.len(), run.ended.len());
        let accounts = run.assembler.take_changed();
        let sum = |count: fn(&FrameCounts) -> u64| accounts.iter().map(|a| count(&a.counts)).sum::<u64>();
        prop_assert_eq!(sum(|c| c.received), sent);
        prop_assert_eq!(sum(|c| c.processed + c.duplicate + c.late + c.rejected), sent);
        prop_assert_eq!(sum(|c| c.processed), run.frames.len() as u64);
    }
}
