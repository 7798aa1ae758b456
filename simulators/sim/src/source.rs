//! Where the frames come from that a simulated detector sends.

use beamstream_core::{Format, Role};

/// What is known of one frame before it is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceFrame {
    /// What the frame is for.
    pub role: Role,
    /// Rotation angle in degrees, where it is known.
    pub angle_deg: Option<f64>,
}

/// Why a frame could not be read.
pub type ReadError = Box<dyn std::error::Error + Send + Sync>;

/// Frames of one format, in any order of roles.
pub trait FrameSource: Send {
    /// Type and shape of every frame.
    fn format(&self) -> Format;

    /// All frames, in the order in which they were taken.
    fn frames(&self) -> &[SourceFrame];

    /// Fills `pixels` with frame `index`: little-endian, row-major, without gaps.
    ///
    /// # Errors
    /// If the frame cannot be read.
    fn read(&mut self, index: usize, pixels: &mut Vec<u8>) -> Result<(), ReadError>;
}

/// Frames in memory.
#[derive(Debug, Clone)]
pub struct Stack {
    format: Format,
    frames: Vec<SourceFrame>,
    pixels: Vec<u8>,
}

impl Stack {
    /// An empty stack of frames of this format.
    pub fn new(format: Format) -> Self {
        Self { format, frames: Vec::new(), pixels: Vec::new() }
    }

    /// Adds a frame. Pixels beyond its size are left out, missing ones are 0.
    pub fn push(&mut self, role: Role, angle_deg: Option<f64>, pixels: &[u8]) {
        self.frames.push(SourceFrame { role, angle_deg });
        self.pixels.extend(pixels.iter().take(self.format.bytes()));
        self.pixels.resize(self.frames.len() * self.format.bytes(), 0);
    }
}

impl FrameSource for Stack {
    fn format(&self) -> Format {
        self.format
    }

    fn frames(&self) -> &[SourceFrame] {
        &self.frames
    }

    fn read(&mut self, index: usize, pixels: &mut Vec<u8>) -> Result<(), ReadError> {
        let bytes = self.format.bytes();
        let frame = self.pixels.get(index * bytes..(index + 1) * bytes).ok_or("no such frame")?;
        pixels.clear();
        pixels.extend_from_slice(frame);
        Ok(())
    }
}
