use std::io::Write;

use proptest::prelude::*;

use super::*;

/// A file whose bytes follow from their places.
fn file(len: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(&bytes).unwrap();
    file.as_file().sync_all().unwrap();
    (file, bytes)
}

/// Every way to read a file; says so where `io_uring` is refused.
fn readers(path: &Path) -> Vec<Reader> {
    let through = Reader::open(path, Cache::Through).unwrap();
    if !through.has_ring() {
        eprintln!("skipped: io_uring is refused here, only pread is tested");
    }
    let around = Reader::open(path, Cache::Around).unwrap();
    let plain = Reader::open(path, Cache::Through).unwrap().without_ring();
    assert!(!plain.has_ring());
    vec![through, around, plain]
}

#[test]
fn a_frame_larger_than_all_requests_at_once_is_read_whole() {
    let (file, expected) = file((21 << 20) + 77);
    for mut reader in readers(file.path()) {
        let mut bytes = vec![0; expected.len()];
        reader.read(&mut [Piece { offset: 0, bytes: &mut bytes }]).unwrap();
        assert!(bytes == expected, "{reader:?}");
    }
}

#[test]
fn the_same_rows_of_many_frames_come_at_once() {
    const FRAME: usize = 64 * 1024;
    let (file, expected) = file(40 * FRAME);
    for mut reader in readers(file.path()) {
        let mut bands = vec![0; 40 * 8192];
        let mut pieces: Vec<Piece<'_>> = bands
            .chunks_exact_mut(8192)
            .enumerate()
            .map(|(frame, bytes)| Piece { offset: (frame * FRAME + 4096) as u64, bytes })
            .collect();
        reader.read(&mut pieces).unwrap();
        for (frame, band) in bands.chunks_exact(8192).enumerate() {
            assert!(band == &expected[frame * FRAME + 4096..][..8192], "frame {frame} of {reader:?}");
        }
    }
}

#[test]
fn a_file_that_is_cut_off_is_named_with_place_and_sizes() {
    let (file, _) = file(10_000);
    for mut reader in readers(file.path()) {
        let mut bytes = vec![0; 4000];
        let error = reader.read(&mut [Piece { offset: 8192, bytes: &mut bytes }]).unwrap_err().to_string();
        let told = "expected 4000 bytes at offset 8192, found 1808";
        assert!(error.contains(told) && error.contains(&*file.path().to_string_lossy()), "{error}");
        // What came before does no harm to what comes after.
        reader.read(&mut [Piece { offset: 0, bytes: &mut bytes }]).unwrap();
        assert!(reader.read(&mut [Piece { offset: u64::MAX - 10, bytes: &mut bytes }]).is_err());
        reader.read(&mut []).unwrap();
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let missing = Reader::open(Path::new("/nowhere/scan.raw"), Cache::Around).unwrap_err();
    assert_eq!(missing.to_string(), "/nowhere/scan.raw cannot be opened");
    for mut reader in readers(Path::new("/")) {
        let error = reader.read(&mut [Piece { offset: 0, bytes: &mut [0; 10] }]).unwrap_err();
        assert!(matches!(error, ReadError::Read { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_pieces_hold_what_the_file_holds(
        places in proptest::collection::vec((0_usize..30_000, 0_usize..9_000, 0_usize..600), 1..40),
    ) {
        let (file, expected) = file(40_000);
        for mut reader in readers(file.path()) {
            // Memory that begins anywhere, as the places do.
            let mut memory: Vec<Vec<u8>> = places.iter().map(|(_, len, skip)| vec![0; len + skip]).collect();
            let mut pieces: Vec<Piece<'_>> = places
                .iter()
                .zip(&mut memory)
                .map(|(&(offset, _, skip), bytes)| Piece { offset: offset as u64, bytes: &mut bytes[skip..] })
                .collect();
            reader.read(&mut pieces).unwrap();
            for (&(offset, len, skip), bytes) in places.iter().zip(&memory) {
                prop_assert_eq!(&bytes[skip..], &expected[offset..offset + len]);
            }
        }
    }
}
