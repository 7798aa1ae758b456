//! Checks of what is given to a reconstruction.

use beamstream_ops::{Projection, ReconError, ReconSpec};

use crate::rows::RowGroup;

pub(crate) fn check_projections(spec: &ReconSpec, projections: &[Projection<'_>]) -> Result<(), ReconError> {
    let expected = spec.rows * spec.columns;
    for projection in projections {
        if projection.pixels.len() != expected {
            return Err(ReconError::ProjectionLength { expected, found: projection.pixels.len() });
        }
        if !projection.angle_rad.is_finite() || !projection.weight.is_finite() {
            return Err(ReconError::Angle { angle_rad: projection.angle_rad, weight: projection.weight });
        }
    }
    Ok(())
}

pub(crate) fn check_row(spec: &ReconSpec, row: usize) -> Result<(), ReconError> {
    if row < spec.rows { Ok(()) } else { Err(ReconError::Row { rows: spec.rows, found: row }) }
}

pub(crate) fn check_room(spec: &ReconSpec, slice: &[f32]) -> Result<(), ReconError> {
    let expected = spec.slice_len();
    if slice.len() == expected {
        Ok(())
    } else {
        Err(ReconError::SliceLength { expected, found: slice.len() })
    }
}

pub(crate) fn check_group(
    spec: &ReconSpec,
    groups: &[RowGroup],
    group: usize,
    out: &[&mut [f32]],
) -> Result<(), ReconError> {
    let Some(rows) = groups.get(group).map(|group| group.rows.len()) else {
        return Err(ReconError::Group { groups: groups.len(), found: group });
    };
    if out.len() != rows {
        return Err(ReconError::Slices { expected: rows, found: out.len() });
    }
    out.iter().try_for_each(|slice| check_room(spec, slice))
}
