//! Tapes that are whole, cut off, and damaged.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use beamstream_core::{
    BlockMeta, ElementType, Format, FrameCounts, FrameId, Role, SeriesHeader, SeriesId, SeriesSummary,
};
use beamstream_tape::{Content, TapeError, TapeReader, TapeWriter};
use proptest::prelude::*;

const FORMAT: Format = Format::frame(ElementType::U16, 4, 8);

fn header(number: u64) -> SeriesHeader {
    let mut header = SeriesHeader::frames(SeriesId { number, ordinal: number }, FORMAT);
    header.expected_frames = Some(3);
    header.angles_rad = Some([0.1, 0.2, 0.1 + 0.2].into());
    header.pixel_size_m = Some(0.1 + 0.2);
    header.metadata = Arc::new(serde_json::json!({ "exposure": 0.1 }));
    header
}

fn meta(number: u64) -> BlockMeta {
    let mut meta = BlockMeta::new(FrameId::new(number), Role::Flat);
    meta.angle_rad = Some(0.1 + 0.2);
    meta.time.received_ns = 17;
    meta.projection = 5;
    meta
}

fn pixels(number: u64) -> Vec<u8> {
    (0..FORMAT.bytes()).map(|at| (at as u64 * 7 + number) as u8).collect()
}

fn summary() -> SeriesSummary {
    let counts =
        FrameCounts { received: 4, processed: 3, rejected: 1, unreplaced: 1, ..FrameCounts::default() };
    SeriesSummary { counts, aborted: false }
}

fn write(path: &Path) -> TapeWriter {
    let mut tape = TapeWriter::create(path).unwrap();
    tape.series(&header(1)).unwrap();
    (0..3).for_each(|number| tape.block(&meta(number), FORMAT, &pixels(number)).unwrap());
    tape.end(&summary()).unwrap();
    tape
}

/// Numbers of the frames whose pixels are right, and what stopped the reading.
fn read(path: &Path) -> Result<(Vec<u64>, Option<TapeError>), TapeError> {
    let mut tape = TapeReader::open(path)?;
    let mut frames = Vec::new();
    loop {
        match tape.next_entry() {
            Ok(None) => return Ok((frames, None)),
            Err(error) => return Ok((frames, Some(error))),
            Ok(Some(entry)) => {
                if let Content::Block { meta, format } = entry.content {
                    let mut found = vec![0; format.bytes()];
                    if tape.read_pixels(&entry, &mut found).is_ok() {
                        assert_eq!(found, pixels(meta.frame.number));
                        frames.push(meta.frame.number);
                    }
                }
            }
        }
    }
}

#[test]
fn what_was_written_comes_back_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    write(&path).finish().unwrap();
    let mut tape = TapeReader::open(&path).unwrap();
    assert!(tape.is_whole());
    let Content::Series(found) = tape.next_entry().unwrap().unwrap().content else { panic!("no series") };
    assert_eq!(format!("{found:?}"), format!("{:?}", header(1)));
    let Content::Block { meta: found, format } = tape.next_entry().unwrap().unwrap().content else {
        panic!("no block")
    };
    assert_eq!((found, format), (meta(0), FORMAT));
    tape.next_entry().unwrap();
    tape.next_entry().unwrap();
    let Content::End(found) = tape.next_entry().unwrap().unwrap().content else { panic!("no end") };
    assert_eq!(*found, summary());
    assert!(tape.next_entry().unwrap().is_none());
}

#[test]
fn a_tape_that_was_cut_anywhere_gives_its_whole_records_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    drop(write(&path));
    let bytes = fs::read(&path).unwrap();
    let mut most = 0;
    for len in 16..bytes.len() {
        fs::write(&path, &bytes[..len]).unwrap();
        let (frames, _) = read(&path).unwrap();
        assert!(frames.len() >= most, "fewer frames of a longer tape");
        most = frames.len();
        let (mut tape, found) = TapeWriter::go_on(&path).unwrap();
        assert!(
            frames.is_empty() || found.open().is_some_and(|open| open.contains(FrameId::new(0))),
            "the end is not there yet"
        );
        tape.series(&header(2)).unwrap();
        tape.block(&meta(9), FORMAT, &pixels(9)).unwrap();
        tape.end(&summary()).unwrap();
        tape.finish().unwrap();
        let (again, error) = read(&path).unwrap();
        assert_eq!((again.len(), again.last()), (frames.len() + 1, Some(&9)));
        assert!(error.is_none());
    }
    assert_eq!(most, 3);
}

#[test]
fn two_programs_do_not_write_one_tape() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let _tape = write(&path);
    assert!(matches!(TapeWriter::create(&path), Err(TapeError::InUse { .. })));
    assert!(matches!(TapeWriter::go_on(&path), Err(TapeError::InUse { .. })));
}

#[test]
fn other_files_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    fs::write(&path, b"precious").unwrap();
    assert!(matches!(TapeReader::open(&path), Err(TapeError::Foreign { .. })));
    fs::write(&path, b"BEAMTAPE\x09\0\0\0\0\0\0\0").unwrap();
    let error = TapeReader::open(&path).unwrap_err().to_string();
    assert!(error.contains("version 9"), "{error}");
}

proptest! {
    /// A damaged tape never gives wrong pixels, and a damage within its records is never passed over.
    #[test]
    fn a_flipped_bit_is_found(at in 0_usize..100_000, bit in 0_u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        write(&path).finish().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let records = 16..bytes.len() - 16 - 40 - 24;
        let at = records.start + at % records.len();
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        let (frames, error) = read(&path).unwrap();
        prop_assert!(frames.len() < 3 || error.is_some());
    }

    /// Whatever stands behind the beginning, reading ends.
    #[test]
    fn noise_is_no_tape(noise in proptest::collection::vec(any::<u8>(), 0..400)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        fs::write(&path, [b"BEAMTAPE\x01\0\0\0\0\0\0\0".as_slice(), &noise].concat()).unwrap();
        let outcome = read(&path);
        prop_assert!(outcome.is_ok_and(|(frames, error)| frames.is_empty() && (error.is_some() || noise.is_empty())));
    }
}
