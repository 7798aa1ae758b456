//! What a block of a plane's pixels needs of a line.

use beamstream_ops::{OpError, Plane};

use super::lines::Ray;

// As in the kernel.
/// Threads of a block for each pixel of its edge: rows of pixels of a warp.
const WARP_ROWS: usize = 4;
/// Rows that are copied together, and their bytes.
const GROUP_ROWS: usize = 8;
const GROUP_BYTES: usize = 16;
/// What a block knows of a line. Unit: bytes.
const LOCAL_RAY_BYTES: usize = 24;

/// Edges of the pixels of a block, the largest that fits.
const EDGES: [usize; 4] = [64, 32, 16, 8];
/// Most lines of a stage, and how many bytes of columns make a stage long enough.
const MAX_LINES: usize = 32;
const STAGE_BYTES: usize = 32 * 1024;
/// Most bytes of a stage.
const MAX_STAGE_BYTES: usize = 44 * 1024;
/// Points farther away than this are not taken: positions are rounded to integers. Unit: voxels.
pub(super) const FARTHEST: f64 = 1e6;

/// The pixels of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Pixels along both axes.
    pub(super) edge: usize,
    /// Whether some lie between two rows.
    pub(super) between: bool,
}

impl Piece {
    /// Threads of its block.
    pub(super) fn threads(self) -> usize {
        self.edge * WARP_ROWS
    }
}

/// Columns and groups of rows that a block needs of a line at most, and lines that it brings at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) piece: Piece,
    pub(super) columns: usize,
    pub(super) groups: usize,
    pub(super) lines: usize,
}

impl Window {
    /// The window for a plane, for lines of these directions and rows whose axes differ by up to `spread_px`.
    ///
    /// # Errors
    /// If a number is not finite or too large, or if pixels are so far apart that not even a small block fits.
    pub(super) fn new(plane: &Plane, rays: &[Ray], spread_px: f64) -> Result<Self, OpError> {
        let Plane { origin, down, right } = plane;
        let numbers = origin.iter().chain(down).chain(right).chain([&spread_px]);
        let refuse = |expected: String| OpError::Format { expected, found: format!("{plane:?}") };
        if !numbers.into_iter().all(|number| number.abs() < FARTHEST) {
            return Err(refuse(format!("a plane within {FARTHEST} voxels")));
        }
        let between = [origin[0], down[0], right[0]].iter().any(|z| (z - z.round()).abs() > 1e-6);
        // Columns from a pixel to the next along both axes together, at most.
        let step = |ray: &Ray| {
            let along = |axis: &[f64; 3]| (axis[2] * ray.cos + axis[1] * ray.sin).abs();
            along(down) + along(right)
        };
        let columns_step = rays.iter().map(step).fold(0.0, f64::max);
        let rows_step = down[0].abs() + right[0].abs();
        let of_edge = |edge: usize| {
            let steps = (edge - 1) as f64;
            // One column below the first, one after the last, and the two that rounding may add.
            let columns = (steps * columns_step + spread_px).ceil() as usize + 4;
            let rows = (steps * rows_step).ceil() as usize + 1 + if between { 2 } else { 0 };
            let groups = (GROUP_ROWS - 1 + rows).div_ceil(GROUP_ROWS);
            let bytes = columns * column_bytes(groups);
            let piece = Piece { edge, between };
            let lines = (STAGE_BYTES / bytes).clamp(1, MAX_LINES.min(piece.threads()));
            let window = Self { piece, columns, groups, lines };
            (bytes <= MAX_STAGE_BYTES && groups <= piece.threads()).then_some(window)
        };
        let found = EDGES.into_iter().find_map(of_edge);
        found.ok_or_else(|| refuse("pixels that are less than some dozen voxels apart".to_owned()))
    }

    /// Shared memory of a block: two stages of columns, three of rays.
    pub(super) fn shared_bytes(&self) -> usize {
        self.lines * (2 * self.columns * column_bytes(self.groups) + 3 * LOCAL_RAY_BYTES)
    }
}

/// Bytes of a column in shared memory: an odd number of groups, which spreads columns over the banks.
fn column_bytes(groups: usize) -> usize {
    (groups | 1) * GROUP_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(plane: &Plane) -> Result<Window, OpError> {
        let rays: Vec<Ray> = (0..180).map(|degrees| Ray::new(f64::from(degrees).to_radians())).collect();
        Window::new(plane, &rays, 0.0)
    }

    #[test]
    fn slices_need_one_row_and_the_diagonal() {
        let found = window(&Plane::horizontal(17, 2048)).unwrap();
        assert_eq!(
            found,
            Window { piece: Piece { edge: 64, between: false }, columns: 94, groups: 1, lines: 21 }
        );
        let between = Plane { origin: [17.5, 0.0, 0.0], ..Plane::horizontal(17, 2048) };
        assert_eq!((window(&between).unwrap().groups, window(&between).unwrap().piece.between), (2, true));
    }

    #[test]
    fn planes_along_the_axis_need_all_rows() {
        let found = window(&Plane::frontal(100, 2048)).unwrap();
        assert_eq!((found.columns, found.groups, found.piece.edge), (67, 9, 64));
    }

    #[test]
    fn pixels_far_apart_go_in_smaller_blocks_or_are_refused() {
        let spread = |by: f64| Plane { origin: [0.0; 3], down: [by, by, 0.0], right: [0.0, 0.0, by] };
        assert_eq!([1.5, 2.0, 4.0].map(|by| window(&spread(by)).unwrap().piece.edge), [64, 32, 16]);
        assert!(window(&spread(1000.0)).is_err());
        assert!(window(&Plane { origin: [f64::NAN, 0.0, 0.0], ..spread(1.0) }).is_err());
    }
}
