//! What one block holds: element type, axes, shape.

use serde::{Deserialize, Serialize};

use crate::ElementType;

/// The meaning of a block's axes, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axes {
    /// `(row, column)`: one detector frame.
    Frame,
    /// `(angle, column)`: the projections of one detector row.
    Sinogram,
    /// `(y, x)`: one reconstructed slice.
    Slice,
}

impl Axes {
    /// The names of the axes, slowest first.
    pub const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Frame => ["row", "column"],
            Self::Sinogram => ["angle", "column"],
            Self::Slice => ["y", "x"],
        }
    }
}

/// Extent of a two-dimensional array: `rows` lines of `columns` elements, row-major and without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Extent of the slow axis.
    pub rows: usize,
    /// Extent of the fast axis.
    pub columns: usize,
}

impl Shape {
    /// A shape of `rows` x `columns`.
    pub const fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns }
    }

    /// Number of elements, or `None` if it does not fit a `usize`.
    pub const fn checked_len(self) -> Option<usize> {
        self.rows.checked_mul(self.columns)
    }

    /// Number of elements.
    ///
    /// Shapes from outside pass [`Format::checked_bytes`] before anything is computed with them.
    pub const fn len(self) -> usize {
        self.rows * self.columns
    }

    /// Whether there is no element.
    pub const fn is_empty(self) -> bool {
        self.rows == 0 || self.columns == 0
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.rows, self.columns)
    }
}

/// Element type, axes and shape of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Format {
    /// Type of an element.
    pub element: ElementType,
    /// Meaning of the axes.
    pub axes: Axes,
    /// Extent of the axes.
    pub shape: Shape,
}

impl Format {
    /// A detector frame of `rows` x `columns`.
    pub const fn frame(element: ElementType, rows: usize, columns: usize) -> Self {
        Self { element, axes: Axes::Frame, shape: Shape::new(rows, columns) }
    }

    /// A slice of `n` x `n` voxels.
    pub const fn slice(element: ElementType, n: usize) -> Self {
        Self { element, axes: Axes::Slice, shape: Shape::new(n, n) }
    }

    /// The same axes and shape with another element type.
    #[must_use]
    pub const fn with_element(self, element: ElementType) -> Self {
        Self { element, ..self }
    }

    /// Size in bytes, or `None` if it does not fit a `usize`.
    pub const fn checked_bytes(self) -> Option<usize> {
        match self.shape.checked_len() {
            Some(len) => len.checked_mul(self.element.size()),
            None => None,
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        self.shape.len() * self.element.size()
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [slow, fast] = self.axes.names();
        write!(f, "{} ({slow} {}, {fast} {})", self.element, self.shape.rows, self.shape.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_are_seen() {
        let monster = Format::frame(ElementType::U32, 1 << 31, 1 << 31);
        assert_eq!(monster.checked_bytes(), None);
        assert_eq!(Format::frame(ElementType::U16, 3, 5).checked_bytes(), Some(30));
    }
}
