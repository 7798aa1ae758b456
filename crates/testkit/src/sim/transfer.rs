//! Copies of a simulated device.

use beamstream_buffer::{Block, LeaseMut};
use beamstream_ops::{OpError, Transfer};

use super::stream::SimStream;

pub(super) struct SimTransfer {
    pub(super) stream: SimStream,
}

impl Transfer for SimTransfer {
    fn copy(&mut self, from: &Block, to: &mut LeaseMut) -> Result<(), OpError> {
        self.stream.core.call("copy")?;
        if from.format() != to.format() {
            let (expected, found) = (to.format().to_string(), from.format().to_string());
            return Err(OpError::Format { expected, found });
        }
        self.stream.enqueue_on(&[from], &mut [to], |from, to| {
            from[0].copy_to(&to[0]);
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<(), OpError> {
        self.stream.wait();
        self.stream.core.call("finish")
    }
}
