//! Memory: how much a run may take of each kind, and how much it takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use beamstream_buffer::{DeviceId, MemoryKind};
use beamstream_ops::Device;

/// Part of a device's free memory that is left to the driver, kernels and their stacks: one of so many.
const DEVICE_RESERVE: u64 = 32;

/// Memory that a run may take. Unit: bytes.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Ordinary and pinned host memory together.
    pub(crate) host: u64,
    /// Memory of each device.
    pub(crate) devices: BTreeMap<DeviceId, u64>,
}

impl Limits {
    /// What is free on each device less a reserve, or `most` of it.
    pub(super) fn new(host: u64, devices: &[Arc<dyn Device>], most: Option<u64>) -> Self {
        let limit = |device: &Arc<dyn Device>| {
            let free = device.free_bytes();
            (free - free / DEVICE_RESERVE).min(most.unwrap_or(u64::MAX))
        };
        Self { host, devices: devices.iter().map(|device| (device.id(), limit(device))).collect() }
    }

    /// What a run may take of one place.
    pub(super) fn of(&self, place: DeviceId) -> u64 {
        match place {
            DeviceId::Cpu => self.host,
            DeviceId::Cuda(_) => self.devices.get(&place).copied().unwrap_or(0),
        }
    }
}

/// Memory that is taken. Unit: bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    /// Ordinary host memory.
    pub(crate) host: u64,
    /// Pinned host memory.
    pub(crate) pinned: u64,
    /// Memory of each device.
    pub(crate) devices: BTreeMap<DeviceId, u64>,
}

impl MemoryUse {
    /// Adds memory of a kind.
    pub(super) fn add(&mut self, kind: MemoryKind, bytes: u64) {
        let sum = match kind {
            MemoryKind::Host => &mut self.host,
            MemoryKind::Pinned => &mut self.pinned,
            MemoryKind::Device(device) => self.devices.entry(device).or_default(),
        };
        *sum = sum.saturating_add(bytes);
    }

    /// Adds all that another one takes.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.add(MemoryKind::Host, other.host);
        self.add(MemoryKind::Pinned, other.pinned);
        for (&device, &bytes) in &other.devices {
            self.add(MemoryKind::Device(device), bytes);
        }
    }

    /// What is taken of one place.
    pub(super) fn of(&self, place: DeviceId) -> u64 {
        match place {
            DeviceId::Cpu => self.host.saturating_add(self.pinned),
            DeviceId::Cuda(_) => self.devices.get(&place).copied().unwrap_or(0),
        }
    }

    /// Memory of all devices.
    pub(crate) fn on_devices(&self) -> u64 {
        self.devices.values().copied().fold(0, u64::saturating_add)
    }

    /// The larger one, kind by kind.
    pub(super) fn max(mut self, other: &Self) -> Self {
        self.host = self.host.max(other.host);
        self.pinned = self.pinned.max(other.pinned);
        for (&device, &bytes) in &other.devices {
            let most = self.devices.entry(device).or_default();
            *most = bytes.max(*most);
        }
        self
    }
}

/// Where memory of a kind is taken from.
pub(super) fn place_of(kind: MemoryKind) -> DeviceId {
    match kind {
        MemoryKind::Host | MemoryKind::Pinned => DeviceId::Cpu,
        MemoryKind::Device(device) => device,
    }
}

/// Where a node that works there takes memory for itself.
pub(super) fn kind_at(device: DeviceId) -> MemoryKind {
    match device {
        DeviceId::Cpu => MemoryKind::Host,
        DeviceId::Cuda(_) => MemoryKind::Device(device),
    }
}
