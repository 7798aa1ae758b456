//! Tables of a Fourier reconstruction, computed on the host in double precision.

use beamstream_ops::{ReconSpec, RotationAxis};

use super::shape::{Shape, WEIGHT_STEPS, is_tilted};
use crate::device_buffer::DeviceBuffer;
use crate::error::CudaError;
use crate::fft::roots;
use crate::stream::CudaStream;

/// Tables on the device.
pub(super) struct Tables {
    /// Response of the filter at the frequencies of a spectrum from 0 on, over the length of the transform.
    pub(super) response: DeviceBuffer<f32>,
    pub(super) row_roots: DeviceBuffer<[f32; 2]>,
    pub(super) grid_roots: DeviceBuffer<[f32; 2]>,
    /// Weights of the four grid points around a sample, for places between two points.
    pub(super) weights: DeviceBuffer<[f32; 4]>,
    /// Correction of the window for each pixel along an axis.
    pub(super) correction: DeviceBuffer<f32>,
    /// Distance of each row's axis from [`axis_px`](Self::axis_px); empty where all are the same.
    pub(super) axis_offset_px: DeviceBuffer<f64>,
    /// The axis that spectra refer to, in columns.
    pub(super) axis_px: f64,
}

impl Tables {
    pub(super) fn new(stream: &CudaStream, spec: &ReconSpec, shape: &Shape) -> Result<Self, CudaError> {
        let scale = 1.0 / shape.padded as f64;
        let response: Vec<f32> =
            spec.response(shape.padded).into_iter().map(|value| (value * scale) as f32).collect();
        let weights: Vec<[f32; 4]> = (0..=WEIGHT_STEPS)
            .map(|step| shape.gridding.weights(step as f64 / WEIGHT_STEPS as f64).map(|weight| weight as f32))
            .collect();
        // Pixel `columns / 2` is the one that lies at index 0 of the transform.
        let middle = (shape.columns / 2) as f64;
        let correction: Vec<f32> =
            (0..shape.columns).map(|pixel| shape.gridding.correction(pixel as f64 - middle) as f32).collect();
        let axes_px: Vec<f64> = (0..spec.rows).filter_map(|row| spec.rotation_axis.of_row(row)).collect();
        let axis_px = match &spec.rotation_axis {
            RotationAxis::Same(axis_px) => *axis_px,
            RotationAxis::PerRow(_) => axes_px.iter().sum::<f64>() / axes_px.len().max(1) as f64,
        };
        let offsets: Vec<f64> =
            if is_tilted(spec) { axes_px.iter().map(|axis| axis - axis_px).collect() } else { Vec::new() };
        Ok(Self {
            response: DeviceBuffer::from_slice(stream, &response)?,
            row_roots: DeviceBuffer::from_slice(stream, &roots(shape.padded))?,
            grid_roots: DeviceBuffer::from_slice(stream, &roots(shape.grid()))?,
            weights: DeviceBuffer::from_slice(stream, &weights)?,
            correction: DeviceBuffer::from_slice(stream, &correction)?,
            axis_offset_px: DeviceBuffer::from_slice(stream, &offsets)?,
            axis_px,
        })
    }
}
