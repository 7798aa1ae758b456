//! The rotation axis from two projections.

use std::sync::Arc;

use beamstream_buffer::{Block, Pool};
use beamstream_ops::{AxisEstimate, Backend, OpError, Transfer};

use crate::gpu::Gpu;
use crate::transfer::CudaTransfer;

/// Brings both projections to the host and asks the host's operation: once a scan, a kernel would save nothing.
pub(crate) fn rotation_axis(
    gpu: &Arc<Gpu>,
    host: &dyn Backend,
    at_0: &Block,
    at_180: &Block,
) -> Result<AxisEstimate, OpError> {
    let mut transfer = CudaTransfer::new(gpu, "rotation axis")?;
    let mut bring = |block: &Block| -> Result<Block, OpError> {
        let format = block.format();
        let refused = |error: beamstream_buffer::PoolError| OpError::Device {
            device: host.device(),
            cause: error.to_string(),
        };
        let mut lease = Pool::host("rotation axis", 1, format.bytes())
            .and_then(|pool| pool.lease(format))
            .map_err(refused)?;
        transfer.copy(block, &mut lease)?;
        Ok(lease.freeze(block.meta))
    };
    let (at_0, at_180) = (bring(at_0)?, bring(at_180)?);
    host.rotation_axis(&at_0, &at_180)
}
