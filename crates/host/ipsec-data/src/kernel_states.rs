//! Packets of states that the kernel's own IPsec has.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The inbound states of the kernel's own IPsec. The daemon's sockets see their packets too, and ignore them.
#[derive(Default)]
pub struct KernelStates {
    any: AtomicBool,
    /// The number of states with each address and SPI, which may differ by mark or protocol.
    known: Mutex<HashMap<(IpAddr, u32), u32>>,
}

impl KernelStates {
    /// Adds a state of the kernel's.
    pub fn add(&self, to: IpAddr, spi: u32) {
        *self.known.lock().entry((to, spi)).or_default() += 1;
        self.any.store(true, Ordering::Release);
    }

    /// Removes a state of the kernel's.
    pub fn remove(&self, to: IpAddr, spi: u32) {
        let mut known = self.known.lock();
        if let Entry::Occupied(mut states) = known.entry((to, spi)) {
            *states.get_mut() -= 1;
            if *states.get() == 0 {
                states.remove();
            }
        }
        self.any.store(!known.is_empty(), Ordering::Release);
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether a packet of ESP belongs to the kernel.
    pub fn has(&self, packet: &[u8]) -> bool {
        if !self.any() {
            return false;
        }
        let to = match packet {
            [first, ..] if first >> 4 == 4 => {
                let at = usize::from(first & 15) * 4;
                packet.get(16..20).and_then(|to| Some((IpAddr::from(*to.first_chunk::<4>()?), at)))
            }
            [first, ..] if first >> 4 == 6 => {
                packet.get(24..40).and_then(|to| Some((IpAddr::from(*to.first_chunk::<16>()?), 40)))
            }
            _ => None,
        };
        to.is_some_and(|(to, at)| self.has_payload(to, packet.get(at..).unwrap_or_default()))
    }

    /// Whether a packet of ESP to an address belongs to the kernel, by its payload without outer headers.
    pub(crate) fn has_payload(&self, to: IpAddr, esp: &[u8]) -> bool {
        let known = |spi: &[u8; 4]| self.known.lock().contains_key(&(to, u32::from_be_bytes(*spi)));
        self.any() && esp.first_chunk().is_some_and(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_kernel_s_as_long_as_it_has_a_state_for_them() {
        let kernel_states = KernelStates::default();
        let to: IpAddr = [192, 0, 2, 2].into();
        let mut packet = [0u8; 28];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[192, 0, 2, 2]);
        packet[20..24].copy_from_slice(&7u32.to_be_bytes());
        let has = || kernel_states.has(&packet);
        assert!(!has());
        // Two that differ by their marks.
        kernel_states.add(to, 7);
        kernel_states.add(to, 7);
        kernel_states.add(to, 8);
        assert!(has() && !kernel_states.has(&packet[..23]) && !kernel_states.has(&[]));
        kernel_states.remove(to, 7);
        assert!(has());
        kernel_states.remove(to, 7);
        kernel_states.remove(to, 7);
        assert!(!has() && kernel_states.any());
        kernel_states.remove(to, 8);
        assert!(!kernel_states.any());
    }
}
