//! Texts of kernels, and what makes two of them the same.

use crate::kernels::HEADERS;

/// A kernel file with the constants that it is compiled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSource {
    /// Name of the file, for errors.
    pub name: &'static str,
    /// The text. It may include the files of `HEADERS` by name, and nothing else.
    pub text: &'static str,
    /// Constants, as `-D` sets them.
    pub defines: Vec<(&'static str, String)>,
    /// Further options of NVRTC, where the file needs any: `--use_fast_math`, say.
    pub options: Vec<&'static str>,
}

impl KernelSource {
    /// A file without constants.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, defines: Vec::new(), options: Vec::new() }
    }

    /// Adds a constant.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.defines.push((name, value.to_string()));
        self
    }

    /// Adds an option of NVRTC.
    #[must_use]
    pub fn option(mut self, option: &'static str) -> Self {
        self.options.push(option);
        self
    }

    /// What NVRTC is told, besides the architecture.
    pub(crate) fn compiler_options(&self) -> Vec<String> {
        let ours = ["--std=c++17", "--device-as-default-execution-space", "--generate-line-info"];
        let defines = self.defines.iter().map(|(name, value)| format!("-D{name}={value}"));
        let options = ours.iter().chain(&self.options).map(|&option| option.to_owned());
        options.chain(defines).collect()
    }

    /// A number that differs where anything differs that the compiler sees; `compiler` names it and the target.
    pub(crate) fn fingerprint(&self, compiler: &str) -> u128 {
        let mut all: Vec<&[u8]> = vec![compiler.as_bytes(), self.name.as_bytes(), self.text.as_bytes()];
        all.extend(HEADERS.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]));
        let options = self.compiler_options();
        all.extend(options.iter().map(String::as_bytes));
        // A length before each text: moving a letter from one to the next changes the number.
        all.iter().fold(FNV_BASIS, |hash, text| fnv(fnv(hash, &text.len().to_le_bytes()), text))
    }
}

/// Start of the hash of Fowler, Noll and Vo in its form 1a with 128 bits (RFC 9923).
pub(crate) const FNV_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// Goes on hashing with `bytes`.
pub(crate) fn fnv(hash: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv(FNV_BASIS, b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn every_difference_counts() {
        let source = KernelSource::new("a.cu", "text").define("N", 5);
        let number = source.fingerprint("13.0 sm_90");
        assert_eq!(number, source.clone().fingerprint("13.0 sm_90"));
        assert_ne!(number, source.fingerprint("13.0 sm_80"));
        assert_ne!(number, source.clone().option("--use_fast_math").fingerprint("13.0 sm_90"));
        assert_ne!(number, KernelSource::new("a.cu", "text").define("N", 6).fingerprint("13.0 sm_90"));
        assert_ne!(number, KernelSource::new("a.cut", "ext").define("N", 5).fingerprint("13.0 sm_90"));
    }

    #[test]
    fn constants_are_options_of_the_compiler() {
        let options =
            KernelSource::new("a.cu", "").define("WIDTH", 4).define("SCALE", "0.5f").compiler_options();
        assert!(options.ends_with(&["-DWIDTH=4".to_owned(), "-DSCALE=0.5f".to_owned()]), "{options:?}");
    }
}
