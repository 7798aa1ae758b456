use std::path::Path;
use std::sync::{Arc, Mutex};

use beamstream_node::{Board, Emit, Journal, StopController};
use beamstream_testkit::build_context;
use serde_json::{Value, json};

use super::*;
use crate::output::{OutputKind, OutputSpec, create_output};

/// Frames of 4 x 6 pixels: frame f has the value 1000 f + 10 row + column.
fn write_frames(path: &Path, kind: OutputKind, count: u16) {
    let format = Format::frame(ElementType::U16, 4, 6);
    let spec = OutputSpec {
        path: path.to_owned(),
        overwrite: false,
        content: Content::Frames,
        format,
        count: None,
        first_number: 0,
    };
    let mut output = create_output(kind, &spec).unwrap();
    for frame in 0..count {
        let pixels: Vec<u16> = (0..24).map(|at| 1000 * frame + 10 * (at / 6) + at % 6).collect();
        output.write(FrameId::new(u64::from(frame)), bytemuck::cast_slice(&pixels)).unwrap();
    }
    output.finish(&Value::Null).unwrap();
}

#[derive(Default)]
struct Received {
    headers: Vec<Arc<SeriesHeader>>,
    blocks: Vec<Block>,
    summaries: Vec<Arc<SeriesSummary>>,
}

struct Collect(Arc<Mutex<Received>>);

impl Emit for Collect {
    fn emit(&mut self, event: Event) -> Result<(), NodeError> {
        let mut received = self.0.lock().unwrap();
        match event {
            Event::Begin(header) => received.headers.push(header),
            Event::Block(block) => received.blocks.push(block),
            Event::End(summary) => received.summaries.push(summary),
        }
        Ok(())
    }

    fn preview(&mut self, _block: Block) -> Result<(), NodeError> {
        Ok(())
    }

    fn wants_previews(&self) -> bool {
        false
    }

    fn pool(&mut self, header: &SeriesHeader, _own: usize, _likes: usize) -> Result<Option<Pool>, NodeError> {
        Ok(Some(Pool::host("test", 64, header.format.bytes())?))
    }
}

fn build(settings: Value) -> ScanSource {
    let config: ScanSourceConfig = serde_json::from_value(settings).unwrap();
    config.build(&build_context(&Journal::new("scan"), &Board::default())).unwrap()
}

fn run(settings: Value) -> Received {
    let received = Arc::new(Mutex::new(Received::default()));
    let (_controller, stop) = StopController::new();
    let mut outlet = Outlet::new(Box::new(Collect(received.clone())), stop, Journal::new("scan"));
    build(settings).run(&mut outlet).unwrap();
    drop(outlet);
    Arc::into_inner(received).unwrap().into_inner().unwrap()
}

fn pixels(block: &Block) -> Vec<u16> {
    block.elements::<u16>().unwrap().to_vec()
}

#[test]
fn rows_and_columns_are_cut_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.h5");
    write_frames(&path, OutputKind::Hdf5, 3);
    let received = run(json!({ "path": path, "rows": "1:3", "columns": "2:5" }));
    let header = &received.headers[0];
    assert_eq!((header.window.first_row, header.window.first_column, header.pass), (1, 2, Pass::whole(2)));
    assert_eq!(header.expected_projections(), Some(3));
    assert_eq!(pixels(&received.blocks[2]), [2012, 2013, 2014, 2022, 2023, 2024]);
    assert_eq!(received.blocks[2].meta.angle_rad, Some(120.0_f64.to_radians()));
    assert!(received.summaries[0].is_complete());
}

#[test]
fn binned_pixels_are_means() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.tif");
    write_frames(&path, OutputKind::TiffStack, 1);
    let received = run(json!({ "path": path, "bin": 2, "columns": "1:6" }));
    // Columns 1 to 4 of rows 0 and 1: the mean of 1, 2, 11 and 12 is 6.5.
    assert_eq!(received.blocks[0].elements::<f32>().unwrap(), [6.5, 8.5, 26.5, 28.5]);
    let window = received.headers[0].window;
    assert_eq!((window.first_column, window.bin), (1, 2));
}

#[test]
fn passes_cover_all_rows_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.h5");
    write_frames(&path, OutputKind::Hdf5, 2);
    let received = run(json!({ "path": path, "rows": "1:4", "band_rows": 2 }));
    let passes: Vec<_> =
        received.headers.iter().map(|h| (h.window.first_row, h.format.shape.rows, h.pass)).collect();
    let pass = |index, first_row| Pass { index, count: 2, first_row, total_rows: 3 };
    assert_eq!(passes, [(1, 2, pass(0, 0)), (3, 1, pass(1, 2))]);
    assert_eq!(received.blocks.iter().map(|b| pixels(b)[0]).collect::<Vec<_>>(), [10, 1010, 30, 1030]);
}

#[test]
fn references_of_other_files_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let (frames, flats, darks) =
        (folder.path().join("frames"), folder.path().join("flat.h5"), folder.path().join("dark.tif"));
    write_frames(&frames, OutputKind::TiffFolder, 3);
    write_frames(&flats, OutputKind::Hdf5, 2);
    write_frames(&darks, OutputKind::TiffStack, 1);
    let angles = folder.path().join("angles.txt");
    std::fs::write(&angles, "0\n45\n90\n").unwrap();
    let flats = format!("{}:/entry/data/data", flats.display());
    let received = run(json!({ "path": frames, "flats": flats, "darks": darks, "angles": angles }));
    let roles: Vec<Role> = received.blocks.iter().map(|b| b.meta.role).collect();
    assert_eq!(
        roles,
        [Role::Dark, Role::Flat, Role::Flat, Role::Projection, Role::Projection, Role::Projection]
    );
    let last = received.blocks[5].meta;
    assert_eq!((last.frame.number, last.projection, last.angle_rad), (5, 2, Some(90.0_f64.to_radians())));
    assert_eq!(received.headers[0].roles.unwrap().flats, 2);
}

#[test]
fn what_does_not_fit_is_a_mistake_in_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scan.h5");
    write_frames(&path, OutputKind::Hdf5, 2);
    let refusal = |settings| {
        let error = build(settings).header().unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Config);
        error.full_text()
    };
    let text = refusal(json!({ "path": path, "rows": "2:9" }));
    assert!(text.contains("2:9") && text.contains("4 rows") && text.contains("scan.h5"), "{text}");
    let text = refusal(json!({ "path": path, "bin": 5 }));
    assert!(text.contains("bin of 5"), "{text}");
    let text = refusal(json!({ "path": path, "flats": "/nowhere" }));
    assert!(text.contains("/nowhere") && text.contains("flats"), "{text}");
    let angles = folder.path().join("angles.txt");
    std::fs::write(&angles, "0\n1\n2\n").unwrap();
    let text = refusal(json!({ "path": path, "angles": angles }));
    assert!(text.contains("3 angles for 2 projections") && text.contains("angles.txt"), "{text}");
    assert!(refusal(json!({ "path": folder.path().join("nowhere.h5") })).contains("nowhere.h5"));
}

fn write_angles(path: &Path, count: usize) {
    let lines: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

#[test]
fn a_folder_that_is_being_filled_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (all, filled) = (folder.path().join("all"), folder.path().join("filled"));
    write_frames(&all, OutputKind::TiffFolder, 6);
    let mut names: Vec<_> =
        std::fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let angles = folder.path().join("angles.txt");
    write_angles(&angles, 10);
    let settings = json!({ "path": filled, "angles": angles, "follow_secs": 1.0 });
    // The folder appears while it is waited for, and one file is half-written for a while.
    let (arrived, tick) = std::sync::mpsc::sync_channel::<()>(0);
    let writer = std::thread::spawn(move || {
        let wait = || tick.recv_timeout(Duration::from_millis(300)).ok();
        wait();
        std::fs::create_dir(&filled).unwrap();
        for (number, name) in names.iter().enumerate() {
            let bytes = std::fs::read(all.join(name)).unwrap();
            if number == 3 {
                std::fs::write(filled.join(name), &bytes[..bytes.len() / 2]).unwrap();
                wait();
            }
            std::fs::write(filled.join(name), bytes).unwrap();
        }
    });
    let received = run(settings);
    drop(arrived);
    writer.join().unwrap();
    let values: Vec<u16> = received.blocks.iter().map(|block| pixels(block)[0]).collect();
    assert_eq!(values, [0, 1000, 2000, 3000, 4000, 5000]);
    let header = &received.headers[0];
    assert_eq!((header.expected_frames, header.angles_rad.is_none()), (None, true));
    assert_eq!(received.blocks[5].meta.angle_rad, Some(5.0_f64.to_radians()));
    assert_eq!(received.blocks[5].meta.projection, 5);
    assert!(received.summaries[0].is_complete());
}

#[test]
fn what_never_appears_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nowhere.h5");
    let (_controller, stop) = StopController::new();
    let received = Arc::new(Mutex::new(Received::default()));
    let mut outlet = Outlet::new(Box::new(Collect(received)), stop, Journal::new("scan"));
    let error = build(json!({ "path": path, "follow_secs": 0.1 })).run(&mut outlet).unwrap_err();
    assert!(error.full_text().contains("nowhere.h5"), "{}", error.full_text());
    for settings in [
        json!({ "path": path, "follow_secs": 0 }),
        json!({ "path": path, "follow_secs": -1e300 }),
        json!({ "path": path, "follow_secs": 1e300 }),
        json!({ "path": path, "follow_secs": 1, "band_rows": 2 }),
    ] {
        let config: ScanSourceConfig = serde_json::from_value(settings.clone()).unwrap();
        let built = config.build(&build_context(&Journal::new("scan"), &Board::default()));
        assert!(built.is_err(), "{settings}");
    }
}
