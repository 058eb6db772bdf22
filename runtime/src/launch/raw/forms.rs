//! Runs the simulator's programs, one for each form of instruction, on a GPU.
//!
//! A launch is safe because the PTX always comes from the simulator's own table.

use super::{RawBuffer, RawKernel};
use crate::device::Device;
use crate::error::{LaunchError, Result};
use atlas_sim::forms::{Case, ENTRY, programs};

/// The simulator's programs, one for each form of instruction, to run on a GPU.
pub struct FormPrograms {
    /// As [`programs`] made them. No other code can add one.
    cases: Vec<Case>,
}

impl FormPrograms {
    /// The programs that `want` selects.
    pub fn new(want: impl Fn(&Case) -> bool) -> FormPrograms {
        FormPrograms { cases: programs().into_iter().filter(want).collect() }
    }

    /// The programs, in a fixed order.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Runs the program of this index on a GPU and returns its output. Bytes that it does not write are `unwritten`.
    ///
    /// # Errors
    /// `LaunchError::WrongAbi` if there is no such program; driver errors.
    pub fn run(&self, device: &Device, index: usize, unwritten: u8) -> Result<Vec<u8>> {
        const THREADS: u32 = 128;
        let case = self.cases.get(index).ok_or_else(|| LaunchError::WrongAbi { kernel: ENTRY.to_owned() })?;
        let kernel = RawKernel::load(device, &case.ptx, ENTRY, 0)?;
        let output = RawBuffer::new(device, &vec![unwritten; case.count() * case.result_bytes as usize])?;
        let inputs: Vec<RawBuffer> =
            case.inputs.iter().map(|input| RawBuffer::new(device, &input.buffer())).collect::<Result<_>>()?;
        let count = case.count() as u32;
        let addresses = std::iter::once(&output).chain(&inputs).flat_map(|b| b.address().to_le_bytes());
        let params: Vec<u8> = addresses.chain(count.to_le_bytes()).collect();
        // More threads than elements, so that the bounds check matters.
        let grid = [count / THREADS + 1, 1, 1];
        // SAFETY: the program is the simulator's own. It has one thread per element, which reads its element of each
        // input and writes that of the output if its number is below the count. Every buffer holds that many elements.
        unsafe { kernel.launch(grid, [THREADS, 1, 1], &params) }?;
        output.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RuntimeError;

    #[test]
    fn only_a_gpu_runs_them() {
        let forms = FormPrograms::new(|case| case.name == "add.u32");
        assert_eq!(forms.cases().len(), 1);
        let error = forms.run(&Device::cpu(), 0, 0xa5).unwrap_err();
        assert_eq!(error.code().to_string(), "ATL628");
        assert!(matches!(forms.run(&Device::cpu(), 1, 0xa5), Err(RuntimeError::Launch(_))));
    }
}
