//! Devices, streams and fences: what the engine knows of them.

use std::str::FromStr;
use std::sync::Arc;

/// Where a node computes and where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// The host's processors.
    Cpu,
    /// An NVIDIA GPU by its CUDA ordinal.
    Cuda(u32),
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The text names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no device: expected cpu, cuda or cuda:N")]
pub struct ParseDeviceError(String);

impl FromStr for DeviceId {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ordinal = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        ordinal.map(Self::Cuda).ok_or_else(|| ParseDeviceError(text.to_owned()))
    }
}

/// The promise that a device has finished writing or reading a buffer.
pub trait Fence: std::any::Any + Send + Sync + std::fmt::Debug {
    /// Whether the device is done. It may tell late, together with what was enqueued soon after.
    fn is_done(&self) -> bool;
    /// Blocks the calling thread until the device is done. Never called on the hot path of a device.
    fn wait(&self);
}

/// A queue of work on one device: what is enqueued later starts after what was enqueued before.
pub trait Stream: Send + std::fmt::Debug {
    /// The device that works the queue off.
    fn device(&self) -> DeviceId;
    /// A fence that is done when everything enqueued so far is done; `None` if it is done already.
    fn record(&self) -> Option<Arc<dyn Fence>>;
    /// Lets later work on this stream start only after `fence`, without blocking the host.
    fn wait_for(&self, fence: &Arc<dyn Fence>);
}

/// The stream of a host node: its work is done when the call returns.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostStream;

impl Stream for HostStream {
    fn device(&self) -> DeviceId {
        DeviceId::Cpu
    }

    fn record(&self) -> Option<Arc<dyn Fence>> {
        None
    }

    fn wait_for(&self, fence: &Arc<dyn Fence>) {
        fence.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for device in [DeviceId::Cpu, DeviceId::Cuda(0), DeviceId::Cuda(63)] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        assert_eq!("cuda".parse(), Ok(DeviceId::Cuda(0)));
        assert!("cuda:x".parse::<DeviceId>().is_err());
        assert!("gpu".parse::<DeviceId>().unwrap_err().to_string().contains("gpu"));
    }
}
