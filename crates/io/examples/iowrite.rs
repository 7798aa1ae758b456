use beamstream_core::*;
use beamstream_io::*;
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    for e in ElementType::ALL {
        for name in ["v.h5", "v.zarr", "v.tif", "slices", "v.npy", "v.raw"] {
            for count in [Some(4u64), None] {
                let path = dir.join(format!(
                    "{e}-{}-{name}",
                    if count.is_some() { "vol" } else { "frames" }
                ));
                let kind = output_kind_of(std::path::Path::new(name)).unwrap();
                let format = if count.is_some() {
                    Format {
                        shape: Shape::new(5, 7),
                        ..Format::slice(e, 1)
                    }
                } else {
                    Format::frame(e, 5, 7)
                };
                let spec = OutputSpec {
                    path,
                    overwrite: true,
                    content: if count.is_some() {
                        Content::Volume
                    } else {
                        Content::Frames
                    },
                    format,
                    count,
                    first_number: 0,
                    provenance: serde_json::json!({"program":"beamstream","version":"0.1.0","rotation_axis_px":20.125, "ü": "µm"}),
                };
                let mut o = create_output(kind, &spec).unwrap();
                for z in [3u64, 0, 2, 1] {
                    let b: Vec<u8> = (0..35)
                        .flat_map(|i| {
                            let v = (z as i64 * 40 + i) as f64;
                            match e {
                                ElementType::U8 => vec![v as u8],
                                ElementType::U16 => (v as u16).to_le_bytes().to_vec(),
                                ElementType::I16 => (v as i16).to_le_bytes().to_vec(),
                                ElementType::U32 => (v as u32).to_le_bytes().to_vec(),
                                ElementType::I32 => (v as i32).to_le_bytes().to_vec(),
                                ElementType::F16 => half::f16::from_f64(v).to_le_bytes().to_vec(),
                                ElementType::F32 => (v as f32).to_le_bytes().to_vec(),
                            }
                        })
                        .collect();
                    o.write(FrameId::new(z), &b).unwrap();
                }
                o.finish(&serde_json::json!({"program":"beamstream","version":"0.1.0","rotation_axis_px":20.125, "ü": "µm"})).unwrap();
            }
        }
    }
}
