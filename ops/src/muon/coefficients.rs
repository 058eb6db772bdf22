//! Coefficients `(a, b, c)` of the steps of Newton-Schulz iterations: a step maps a singular value `x` to `a x + b x^3 + c x^5`.
//!
//! Where singular values between 0.001, 0.01 and 1 (`|g|` at most) end, after the division by `stretch |g|`:
//!
//! | iteration | from 0.001 | from 0.01 |
//! |---|---|---|
//! | five steps of the classic ones | 0.47 to 1.20 | 0.68 to 1.13 |
//! | [`YOU`] | 0.47 to 1.15 | 0.97 to 1.04 |
//! | [`POLAR_EXPRESS`], five steps | 0.84 to 1.13 | 0.87 to 1.13 |
//! | [`POLAR_EXPRESS`], six steps | 0.99 to 1.01 | 0.99 to 1.01 |
//! | [`POLAR_EXPRESS_MODDED_NANOGPT`] | 0.84 to 1.15 | 0.85 to 1.15 |
//!
//! The classic ones are [`CLASSIC`](crate::newton_schulz_small::CLASSIC).

/// Jiacheng You's: LaCT and Microsoft's dion use them.
pub const YOU: [[f64; 3]; 5] = [
    [4.0848, -6.8946, 2.9270],
    [3.9505, -6.3029, 2.6377],
    [3.7418, -5.5913, 2.3037],
    [2.8769, -3.1427, 1.2046],
    [2.8366, -3.0525, 1.2012],
];

/// Those of the paper of Polar Express (arXiv 2505.16932), algorithm 1: each polynomial is the best one for the singular values that
/// those before it leave, from 0.001 on, and of a number that is 1.01 times as large, for safety. Only the last one is not; it is
/// the limit, and further steps repeat it. For norms that are stretched by 1.01.
pub const POLAR_EXPRESS: [[f64; 3]; 8] = safe([
    [8.287_212_018_145_63, -23.595_886_519_098_837, 17.300_387_312_530_933],
    [4.107_059_111_542_203, -2.947_849_916_737_910_6, 0.544_843_108_292_660_1],
    [3.948_690_853_482_294_6, -2.908_902_115_962_949, 0.551_819_139_437_013_7],
    [3.318_419_657_370_601_5, -2.488_488_024_314_874, 0.510_048_940_123_72],
    [2.300_652_019_954_817, -1.668_903_984_574_749_3, 0.418_807_311_952_567_3],
    [1.891_301_407_787_398, -1.267_995_827_194_586_8, 0.376_804_089_485_248_35],
    [1.875_001_480_853_447_9, -1.250_001_645_399_948_7, 0.375_000_164_547_424_8],
    [1.875, -1.25, 0.375],
]);

/// Those of modded-nanogpt, nanochat and Microsoft's dion: the method of the paper for five steps, with a safety of 1.02 that each
/// polynomial but the last has, and that those behind it are made for. For norms that are stretched by 1.02.
pub const POLAR_EXPRESS_MODDED_NANOGPT: [[f64; 3]; 5] = [
    [8.156_554_524_902_461, -22.483_292_925_577_95, 15.878_769_915_207_462],
    [4.042_929_935_166_739, -2.808_917_465_908_714, 0.500_017_845_105_131_6],
    [3.891_667_802_292_660_7, -2.772_484_153_217_685, 0.506_064_817_850_339_3],
    [3.285_753_657_755_655, -2.368_129_493_342_537_6, 0.464_490_242_330_031_06],
    [2.346_541_325_859_637_7, -1.709_782_838_268_708_1, 0.423_235_511_693_053_23],
];

/// The paper's safety: each polynomial but the last is one of `x / 1.01`.
const fn safe(mut steps: [[f64; 3]; 8]) -> [[f64; 3]; 8] {
    const SAFETY: f64 = 1.01;
    let mut i = 0;
    while i + 1 < steps.len() {
        let [a, b, c] = steps[i];
        let cube = SAFETY * SAFETY * SAFETY;
        steps[i] = [a / SAFETY, b / cube, c / (cube * SAFETY * SAFETY)];
        i += 1;
    }
    steps
}
