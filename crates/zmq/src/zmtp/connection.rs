//! One connection: messages from the socket to the consumer.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TrySendError, select};

use super::handshake::{MAX_COMMAND_BYTES, answer, handshake};
use super::message::{Body, Lease, MAX_PARTS, Message};
use super::reader::{COMMAND, FrameReader, MORE};
use super::receiver::{Control, Lines, Options};
use super::stream::Stream;
use super::{PartBuffers, ZmtpError};

/// Reads wake up this often, so that a peer that stops within a message is noticed.
const WAKE: Duration = Duration::from_secs(5);

/// Serves a connection until it ends; always ends with the reason.
pub(super) fn serve<B: PartBuffers>(
    mut stream: Stream,
    peer: u64,
    options: &Options,
    control: &Control,
    lines: &Lines<B::Lease>,
    buffers: &mut B,
) -> ZmtpError {
    let ready = handshake(&mut stream, options.socket, options.limits.handshake)
        .and_then(|()| stream.set_timeouts(WAKE, WAKE).map_err(ZmtpError::from));
    if let Err(error) = ready {
        return error;
    }
    control.traffic.connections.fetch_add(1, Ordering::Relaxed);
    let mut reader = FrameReader::new(stream, options.limits.silence);
    loop {
        let mut body = lines.resting.try_recv().unwrap_or_default();
        let discarded_parts = match receive(&mut reader, &mut body, options, buffers) {
            Ok(discarded) => discarded,
            Err(error) => {
                let begun = body.used > 0;
                body.clear();
                drop(lines.rest.try_send(body));
                if begun {
                    control.traffic.broken_messages.fetch_add(1, Ordering::Relaxed);
                }
                return error;
            }
        };
        control.traffic.messages.fetch_add(1, Ordering::Relaxed);
        let received = Instant::now();
        let bytes = body.parts[..body.used].iter().map(|part| part.len as u64).sum();
        let Some(share) = control.quota.take(bytes) else {
            return ZmtpError::ShutDown;
        };
        let home = lines.rest.clone();
        let message = Message { body, home, share: Some(share), peer, discarded_parts, received };
        if deliver(message, &lines.deliver, control).is_err() {
            return ZmtpError::ShutDown;
        }
    }
}

/// Hands a message on; waits while the consumer is busy, which stops the socket and so the sender.
fn deliver<L>(message: Message<L>, line: &Sender<Message<L>>, control: &Control) -> Result<(), ()> {
    let message = match line.try_send(message) {
        Ok(()) => return Ok(()),
        Err(TrySendError::Disconnected(_)) => return Err(()),
        Err(TrySendError::Full(message)) => message,
    };
    select! {
        send(line, message) -> sent => sent.map_err(|_gone| ()),
        recv(control.stopped) -> _ => Err(()),
    }
}

/// Reads one message; gives the number of parts that were discarded.
fn receive<B: PartBuffers>(
    reader: &mut FrameReader<Stream>,
    body: &mut Body<B::Lease>,
    options: &Options,
    buffers: &mut B,
) -> Result<u64, ZmtpError> {
    let mut discarded = 0;
    let mut total = 0_u64;
    let mut within = false;
    loop {
        let header = reader.header(within)?;
        if header.flags & COMMAND != 0 {
            command(reader, header.len)?;
            continue;
        }
        within = true;
        total = total.saturating_add(header.len);
        for (what, found, limit) in [
            ("a part", header.len, options.limits.part_bytes),
            ("a message", total, options.limits.message_bytes),
        ] {
            if found > limit {
                return Err(ZmtpError::TooLong { what, found, limit });
            }
        }
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        if body.used == MAX_PARTS {
            reader.skip(header.len)?;
            discarded += 1;
        } else {
            let part = body.next_part();
            part.len = len;
            part.lease = buffers.buffer(len);
            match &mut part.lease {
                Some(lease) => reader.read_exact(lease.bytes_mut())?,
                None => reader.read_growing(&mut part.scratch, len)?,
            }
        }
        if header.flags & MORE == 0 {
            return Ok(discarded);
        }
    }
}

fn command(reader: &mut FrameReader<Stream>, len: u64) -> Result<(), ZmtpError> {
    if len > MAX_COMMAND_BYTES {
        return Err(ZmtpError::TooLong { what: "a command", found: len, limit: MAX_COMMAND_BYTES });
    }
    let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    if let Some(answer) = answer(&body) {
        reader.stream().write_all(&answer)?;
    }
    Ok(())
}
