use beamstream_io::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut o = ScanOptions::default();
    if let Some(d) = args.get(2).filter(|s| !s.is_empty()) {
        o.data = Some(d.clone());
    }
    match Scan::open(std::path::Path::new(&args[1]), &o) {
        Err(e) => {
            let mut s = e.to_string();
            let mut c = std::error::Error::source(&e);
            while let Some(x) = c {
                s += &format!(": {x}");
                c = x.source();
            }
            println!("ERROR {s}");
        }
        Ok(mut scan) => {
            let i = scan.info().clone();
            println!(
                "{} {} n={} p={} f={} d={} px={:?} warn={:?} ds={} meta={}",
                i.kind,
                i.format,
                i.frames.len(),
                i.count(beamstream_core::Role::Projection),
                i.count(beamstream_core::Role::Flat),
                i.count(beamstream_core::Role::Dark),
                i.pixel_size_m,
                i.warnings,
                i.datasets.len(),
                i.metadata.as_object().map_or(0, |m| m.len())
            );
            let a = i.projection_angles_deg();
            println!("angles {:?}..{:?}", a.first(), a.last());
            if let Some(out) = args.get(3) {
                let mut all = Vec::new();
                let mut buf = vec![0; i.format.bytes()];
                for f in 0..i.frames.len() {
                    if let Err(e) = scan.read(f, 0..i.format.shape.rows, &mut buf) {
                        println!("ERROR {e} {:?}", e);
                        return;
                    }
                    all.extend_from_slice(&buf);
                }
                std::fs::write(out, all).unwrap();
            }
        }
    }
}
