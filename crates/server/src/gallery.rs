//! The newest image of every place, prepared once for all viewers.

use std::collections::BTreeMap;
use std::sync::Arc;

use beamstream_node::View;

use crate::LiveRun;
use crate::picture::{Picture, Spot};

/// Views at most that are shown; further ones are left out.
const MAX_VIEWS: usize = 16;
/// Images at most of one view.
const MAX_PANELS: usize = 16;

/// The images that hang at a time.
pub(crate) type Pictures = BTreeMap<Spot, Arc<Picture>>;

/// The places of a view that are shown: all, or some that are spread evenly.
pub(crate) fn places(view: &View) -> Vec<u64> {
    let all: Vec<u64> = view.images.keys().copied().collect();
    let count = all.len().min(MAX_PANELS);
    (0..count).map(|i| all[(2 * i + 1) * all.len() / (2 * count)]).collect()
}

/// Prepares the images of a run anew where they have changed. Says whether any has.
///
/// At most one buffer of the pipeline is held at a time, for as long as it takes to read it once.
pub(crate) fn refresh(pictures: &mut Pictures, run: &dyn LiveRun) -> bool {
    let wanted: Vec<(Spot, String, u64)> = run
        .views()
        .iter()
        .take(MAX_VIEWS)
        .enumerate()
        .flat_map(|(number, (node, view))| {
            places(view).into_iter().enumerate().map(move |(panel, place)| {
                (Spot { view: number as u8, panel: panel as u8 }, node.clone(), place)
            })
        })
        .collect();
    let before = pictures.len();
    pictures.retain(|spot, _| wanted.iter().any(|(wanted, ..)| wanted == spot));
    let mut changed = pictures.len() != before;
    for (spot, node, place) in wanted {
        if let Some(picture) = prepare(pictures.get(&spot), run, spot, &node, place) {
            pictures.insert(spot, Arc::new(picture));
            changed = true;
        }
    }
    changed
}

/// The image at a place, if it is another than the one that hangs there.
fn prepare(
    hanging: Option<&Arc<Picture>>,
    run: &dyn LiveRun,
    spot: Spot,
    node: &str,
    place: u64,
) -> Option<Picture> {
    let (image, series) = {
        let mut view = run.views().remove(node)?;
        (view.images.remove(&place)?, view.header.map_or(0, |header| header.id.number))
    };
    if hanging.is_some_and(|picture| (picture.place, picture.version) == (place, image.version)) {
        return None;
    }
    Picture::new(spot, place, image.version, series, &image.block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{FakeRun, image};

    #[test]
    fn images_are_prepared_when_they_change() {
        let run = FakeRun::default();
        let mut pictures = Pictures::new();
        assert!(!refresh(&mut pictures, &run));
        run.board.pin("eyes", 8, image(2, 1.0));
        run.board.pin("eyes", 3, image(2, 2.0));
        assert!(refresh(&mut pictures, &run));
        assert!(!refresh(&mut pictures, &run));
        let places: Vec<u64> = pictures.values().map(|picture| picture.place).collect();
        assert_eq!(places, [3, 8]);
        run.board.pin("eyes", 3, image(2, 5.0));
        assert!(refresh(&mut pictures, &run));
        run.board.clear("eyes");
        assert!(refresh(&mut pictures, &run));
        assert!(pictures.is_empty());
    }

    #[test]
    fn buffers_go_back_to_their_pool() {
        let run = FakeRun::default();
        run.board.pin("eyes", 0, image(2, 1.0));
        let mut pictures = Pictures::new();
        refresh(&mut pictures, &run);
        let image = run.views().remove("eyes").unwrap().images.remove(&0).unwrap();
        run.board.clear("eyes");
        assert!(image.block.try_into_mut().is_ok(), "nobody else holds the buffer");
    }

    #[test]
    fn many_places_are_thinned_evenly() {
        let mut view = View::default();
        for place in 0..32 {
            view.images.insert(place, beamstream_node::ViewImage { block: image(1, 0.0), version: 1 });
        }
        assert_eq!(places(&view), (0..16).map(|i| 2 * i + 1).collect::<Vec<u64>>());
    }
}
