//! What devices used while a run lasted.

use std::sync::Arc;

use beamstream_ops::Device;

/// The energy counters of all devices when a run began.
pub(crate) struct Energy {
    began: Vec<(Arc<dyn Device>, f64)>,
}

impl Energy {
    /// Reads the counters of those devices that have one.
    pub(crate) fn begin(devices: &[Arc<dyn Device>]) -> Self {
        let counters = devices.iter().filter_map(|device| Some((device.clone(), device.energy_joules()?)));
        Self { began: counters.collect() }
    }

    /// Energy since the beginning; `None` where no device tells. Unit: joules.
    pub(crate) fn used_joules(&self) -> Option<f64> {
        let used = self.began.iter().filter_map(|(device, began)| Some(device.energy_joules()? - began));
        used.reduce(|sum, joules| sum + joules)
    }
}
