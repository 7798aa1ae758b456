//! The kernel's queues: requests in, completions out.
#![allow(unsafe_code, reason = "the kernel writes into memory that requests name by address")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode};

use crate::parts::Part;

/// Requests at once: with parts of 1 MiB more gain nothing on a virtual disk.
const DEPTH: u32 = 16;
/// Numbers of the registered files.
const BUFFERED: u32 = 0;
const DIRECT: u32 = 1;

/// Why parts were not read.
pub(crate) enum Fault {
    /// The file ends before the part does.
    EndOfFile(usize),
    /// The system refused to read the part.
    Part(usize, io::Error),
    /// The ring does not work any more; what was asked of it is over, and other ways may still read the parts.
    Broken(io::Error),
}

/// A ring with the two handles of one file.
pub(crate) struct Ring {
    ring: IoUring,
    _files: Vec<File>,
}

impl Ring {
    pub(crate) fn new(buffered: &File, direct: Option<&File>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_coop_taskrun().build(DEPTH)?;
        let files = [buffered, direct.unwrap_or(buffered)];
        let files = files.into_iter().map(File::try_clone).collect::<io::Result<Vec<_>>>()?;
        let descriptors: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&descriptors)?;
        Ok(Self { ring, _files: files })
    }

    /// Fills all parts. The kernel writes to none of them any more when this returns, whatever the outcome.
    pub(crate) fn read(&mut self, parts: &mut [Part<'_>]) -> Result<(), Fault> {
        let mut waiting: Vec<usize> = (0..parts.len()).rev().filter(|&at| !parts[at].is_done()).collect();
        let mut in_flight = 0;
        let mut fault = None;
        let mut is_broken = false;
        loop {
            while in_flight < DEPTH as usize
                && fault.is_none()
                && let Some(at) = waiting.pop()
            {
                if self.push(at, &mut parts[at]) {
                    in_flight += 1;
                } else {
                    waiting.push(at);
                    break;
                }
            }
            if in_flight == 0 {
                return fault.map_or(Ok(()), Err);
            }
            if is_broken {
                // What the kernel took it still ends; its completions appear without a call.
                std::thread::yield_now();
            } else if let Err(error) = self.ring.submit_and_wait(1)
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                is_broken = true;
                in_flight -= self.ring.submission().len();
                fault = Some(Fault::Broken(error));
            }
            for completion in self.ring.completion() {
                in_flight -= 1;
                let at = completion.user_data() as usize;
                match settle(at, &mut parts[at], completion.result()) {
                    Ok(()) if parts[at].is_done() => {}
                    Ok(()) => waiting.push(at),
                    Err(found) => {
                        fault.get_or_insert(found);
                    }
                }
            }
        }
    }

    /// Puts the rest of a part into the queue; `false` if it is full.
    fn push(&mut self, at: usize, part: &mut Part<'_>) -> bool {
        let file = Fixed(if part.direct { DIRECT } else { BUFFERED });
        let offset = part.offset + part.done as u64;
        let rest = &mut part.bytes[part.done..];
        // A part has at most 1 MiB.
        let entry = opcode::Read::new(file, rest.as_mut_ptr(), rest.len() as u32).offset(offset);
        let entry = entry.build().user_data(at as u64);
        // SAFETY: the memory is borrowed by `read`, which returns only when every request that the kernel took is
        // complete, and the registered files live as long as the ring.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }
}

/// Takes the result of a request into account.
fn settle(at: usize, part: &mut Part<'_>, result: i32) -> Result<(), Fault> {
    if let Ok(found) = usize::try_from(result) {
        return if part.advance(found) { Ok(()) } else { Err(Fault::EndOfFile(at)) };
    }
    match -result {
        libc::EINTR | libc::EAGAIN => Ok(()),
        libc::EINVAL if part.direct => {
            part.direct = false;
            Ok(())
        }
        code => Err(Fault::Part(at, io::Error::from_raw_os_error(code))),
    }
}
