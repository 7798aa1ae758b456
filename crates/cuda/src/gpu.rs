//! One GPU of this machine.
#![allow(unsafe_code, reason = "contexts and memory pools are handles of the driver")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use beamstream_buffer::DeviceId;
use cudarc::driver::sys::{self, CUdevice_attribute, CUmemPool_attribute};

use crate::driver::{Driver, RawDevice};
use crate::error::CudaError;
use crate::kernel::Modules;
use crate::nvml::Meter;
use crate::progress::EventPool;
use crate::status::{check, ignore};
use crate::trace::Recorder;

/// What a GPU is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProperties {
    /// Name of the model.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Most shared memory that a block can ask for. Unit: bytes.
    pub shared_bytes: u32,
    /// Second-level cache. Unit: bytes.
    pub l2_bytes: usize,
    /// Memory. Unit: bytes.
    pub total_bytes: usize,
    /// Place on the PCI bus: `0000:17:00.0`.
    pub pci_address: String,
}

impl GpuProperties {
    pub(crate) fn of(device: RawDevice) -> Result<Self, CudaError> {
        use CUdevice_attribute as A;
        let number = |attribute| device.attribute(attribute).map(i32::unsigned_abs);
        Ok(Self {
            name: device.name()?,
            compute_capability: (
                number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: number(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            shared_bytes: number(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            l2_bytes: number(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
            total_bytes: device.total_bytes()?,
            pci_address: device.pci_address()?,
        })
    }

    /// The number that NVRTC calls the architecture by: 90 for compute capability 9.0.
    pub fn architecture(&self) -> u32 {
        self.compute_capability.0 * 10 + self.compute_capability.1
    }
}

/// An open GPU: its context, and what all streams on it share. One per device and process.
pub struct Gpu {
    device: RawDevice,
    context: sys::CUcontext,
    properties: GpuProperties,
    /// The driver's pool that work space comes from.
    pool: sys::CUmemoryPool,
    events: EventPool,
    modules: Modules,
    meter: OnceLock<Option<Meter>>,
    recorder: Recorder,
    failure: OnceLock<CudaError>,
}

// SAFETY: the handles may be used from any thread, the driver locks; all other fields are `Send`.
unsafe impl Send for Gpu {}
// SAFETY: as above; what can change lies behind locks.
unsafe impl Sync for Gpu {}

type Open = BTreeMap<u32, Weak<Gpu>>;

/// The GPUs that are open in this process.
fn open_gpus() -> MutexGuard<'static, Open> {
    static OPEN: Mutex<Open> = Mutex::new(BTreeMap::new());
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens the GPU of this number, or gives the one that is open. GPUs that are open together can copy to each
    /// other directly, where the machine allows it.
    ///
    /// # Errors
    /// [`CudaError`] if there is no driver or no such GPU, or if the driver refuses.
    pub fn open(ordinal: u32) -> Result<Arc<Self>, CudaError> {
        let driver = Driver::get()?;
        let mut open = open_gpus();
        if let Some(gpu) = open.get(&ordinal).and_then(Weak::upgrade).filter(|gpu| gpu.check().is_ok()) {
            return Ok(gpu);
        }
        let gpu = Arc::new(Self::new(driver.device(ordinal)?)?);
        for other in open.values().filter_map(Weak::upgrade) {
            gpu.connect(&other);
            other.connect(&gpu);
        }
        open.insert(ordinal, Arc::downgrade(&gpu));
        Ok(gpu)
    }

    fn new(device: RawDevice) -> Result<Self, CudaError> {
        let id = device.id;
        let properties = GpuProperties::of(device)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: it stores one handle; `drop` releases it.
        let status = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device.raw) };
        check(id, "cuDevicePrimaryCtxRetain", status)?;
        let mut gpu = Self {
            device,
            context,
            properties,
            pool: std::ptr::null_mut(),
            events: EventPool::default(),
            modules: Modules::new(HashMap::new()),
            meter: OnceLock::new(),
            recorder: Recorder::default(),
            failure: OnceLock::new(),
        };
        gpu.bind()?;
        // SAFETY: it stores one handle, which belongs to the device and is never freed.
        let status = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut gpu.pool, device.raw) };
        check(id, "cuDeviceGetDefaultMemPool", status)?;
        gpu.keep_freed_memory()?;
        Ok(gpu)
    }

    /// Work space that is freed stays with the pool: taking it again then costs no call into the system.
    fn keep_freed_memory(&self) -> Result<(), CudaError> {
        let mut threshold = u64::MAX;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool is the device's own, and this attribute is a `u64`.
        let status = unsafe { sys::cuMemPoolSetAttribute(self.pool, attribute, (&raw mut threshold).cast()) };
        check(self.id(), "cuMemPoolSetAttribute", status)
    }

    /// Lets this GPU read and write the memory of `other`. Where it cannot, copies go through the host.
    fn connect(&self, other: &Self) {
        let mut possible = 0;
        // SAFETY: both devices exist; it stores one integer.
        let status =
            unsafe { sys::cuDeviceCanAccessPeer(&raw mut possible, self.device.raw, other.device.raw) };
        if check(self.id(), "cuDeviceCanAccessPeer", status).is_ok() && possible != 0 && self.bind().is_ok() {
            // SAFETY: this context is current and the other one is open. A second time is refused, harmlessly.
            ignore(unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) });
        }
    }

    /// Makes this GPU the one that calls of this thread concern.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained until `drop`.
        let status = unsafe { sys::cuCtxSetCurrent(self.context) };
        check(self.id(), "cuCtxSetCurrent", status)
    }

    /// The device.
    pub fn id(&self) -> DeviceId {
        self.device.id
    }

    /// What the GPU is.
    pub fn properties(&self) -> &GpuProperties {
        &self.properties
    }

    /// A property that [`GpuProperties`] does not have.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver does not know it.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
        self.device.attribute(attribute)
    }

    /// Free and total memory; what the work-space pool holds unused counts as free. Unit: bytes.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it stores two sizes.
        let status = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check(self.id(), "cuMemGetInfo", status)?;
        let reserved = self.pool_bytes(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = self.pool_bytes(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok((free + reserved.saturating_sub(used), total))
    }

    fn pool_bytes(&self, attribute: CUmemPool_attribute) -> Result<usize, CudaError> {
        let mut bytes = 0_u64;
        // SAFETY: the pool is the device's own, and the attributes asked for are `u64`.
        let status = unsafe { sys::cuMemPoolGetAttribute(self.pool, attribute, (&raw mut bytes).cast()) };
        check(self.id(), "cuMemPoolGetAttribute", status)?;
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Gives the unused memory of the work-space pool back to the device, after all work on it.
    pub(crate) fn trim(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: no precondition but a current context.
        let status = unsafe { sys::cuCtxSynchronize() };
        check(self.id(), "cuCtxSynchronize", status)?;
        // SAFETY: the pool is the device's own; only memory that nobody holds goes.
        let status = unsafe { sys::cuMemPoolTrimTo(self.pool, 0) };
        check(self.id(), "cuMemPoolTrimTo", status)
    }

    /// Energy used since the driver was loaded, where the GPU measures it. Unit: joules.
    pub fn energy_joules(&self) -> Option<f64> {
        let meter = self.meter.get_or_init(|| Meter::open(&self.properties.pci_address));
        meter.as_ref().and_then(Meter::energy_joules)
    }

    /// Whether the GPU still works; a fence that failed is remembered here.
    ///
    /// # Errors
    /// That failure, from then on.
    pub fn check(&self) -> Result<(), CudaError> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Remembers the first failure that nobody could be told of.
    pub(crate) fn fail(&self, error: CudaError) {
        let _earlier = self.failure.set(error);
    }

    /// The NUMA node that the GPU is attached to, where the machine has several.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        crate::pages::numa_node_of(&self.properties.pci_address)
    }

    pub(crate) fn events(&self) -> &EventPool {
        &self.events
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }
}

/// Waits for all work on all open GPUs, before memory goes that any of them may use.
pub(crate) fn synchronize_all() {
    let gpus: Vec<Arc<Gpu>> = open_gpus().values().filter_map(Weak::upgrade).collect();
    for gpu in gpus {
        if gpu.bind().is_ok() {
            // SAFETY: no precondition but a current context.
            ignore(unsafe { sys::cuCtxSynchronize() });
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_ok() {
            self.events.clear();
            self.recorder.clear();
            crate::kernel::unload(&self.modules);
        }
        // SAFETY: retained once by `new`; nothing that was made in the context lives longer than the last `Arc`.
        ignore(unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device.raw) });
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.id(), self.properties.name)
    }
}
