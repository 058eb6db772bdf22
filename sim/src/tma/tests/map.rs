//! Tensor maps: the driver's rules one by one, and the encoding.

use crate::fault::FaultKind;
use crate::tensor::swizzle::Swizzle;
use crate::tma::encoding::BYTES;
use crate::tma::{Element, Fill, TensorMap};

/// A map that meets every rule.
fn good() -> TensorMap {
    let map = TensorMap::dense(Element::Bf16, 0x7f00_0000_0010, &[4096, 512, 3], &[64, 128, 1]);
    TensorMap { swizzle: Swizzle::B128, ..map }
}

#[test]
fn dense_strides() {
    assert_eq!(good().strides_bytes, [0, 8192, 8192 * 512, 0, 0]);
    assert_eq!((good().row_bytes(), good().box_bytes()), (128, 16384));
}

/// Breaks a rule, or goes to its limit.
type Change = fn(&mut TensorMap);

#[test]
fn each_rule_is_checked() {
    let with = |change: Change| {
        let mut map = good();
        change(&mut map);
        map.validate()
    };
    assert!(with(|_| ()).is_ok());
    assert!(with(|m| m.box_dims[1] = 256).is_ok());
    assert!(with(|m| m.dims[2] = 1 << 32).is_ok());
    // The third stride below the second: panels of a wide tile as a dimension of their own.
    assert!(with(|m| m.strides_bytes[2] = 128).is_ok());
    assert!(with(|m| (m.element, m.fill) = (Element::F16, Fill::Nan)).is_ok());
    let wrong: [(&str, Change); 15] = [
        ("rank 0", |m| m.rank = 0),
        ("rank 6", |m| m.rank = 6),
        ("global address", |m| m.address += 8),
        ("dimension 1 has 0", |m| m.dims[1] = 0),
        ("dimension 2 has", |m| m.dims[2] = (1 << 32) + 1),
        ("stride of dimension 1", |m| m.strides_bytes[1] = 8200),
        ("stride of dimension 2", |m| m.strides_bytes[2] = 1 << 40),
        ("box has 257", |m| m.box_dims[1] = 257),
        ("box has 0", |m| m.box_dims[2] = 0),
        ("element stride of dimension 1 is 9", |m| m.element_strides[1] = 9),
        ("element stride of dimension 2 is 0", |m| m.element_strides[2] = 0),
        ("6 bytes, not a multiple of 16", |m| m.box_dims[0] = 3),
        ("more than the swizzle's 128", |m| m.box_dims[0] = 72),
        ("more than the swizzle's 64", |m| m.swizzle = Swizzle::B64),
        ("cannot be filled with NaN", |m| (m.element, m.fill) = (Element::U16, Fill::Nan)),
    ];
    for (words, change) in wrong {
        let fault = with(change).expect_err(words);
        assert_eq!(fault.kind, FaultKind::Illegal);
        assert!(fault.message.contains(words), "{} has no {words}", fault.message);
    }
}

#[test]
fn encoding_round_trips() {
    for (i, element) in Element::ALL.into_iter().enumerate() {
        let map = TensorMap {
            element,
            box_dims: [16 / element.bytes(), 256, 1, 7, 1],
            element_strides: [1, 2, 8, 1, 1],
            swizzle: Swizzle::ALL[i % 4],
            fill: if element.is_float() { Fill::Nan } else { Fill::Zeros },
            ..TensorMap::dense(element, 0xfedc_ba98_7654_3210, &[1 << 32, 3, 2, 16, 5], &[])
        };
        let map = TensorMap { strides_bytes: [0, 16, (1 << 40) - 16, 32, 48], ..map };
        assert_eq!(TensorMap::from_bytes(&map.to_bytes()).unwrap(), map);
    }
}

#[test]
fn any_damaged_byte_is_found() {
    let bytes = good().to_bytes();
    for at in 0..BYTES {
        let mut damaged = bytes;
        damaged[at] ^= 0x40;
        assert_eq!(TensorMap::from_bytes(&damaged).unwrap_err().kind, FaultKind::Illegal, "byte {at}");
    }
    assert!(TensorMap::from_bytes(&[0; BYTES]).unwrap_err().message.contains("hold none"));
}

#[test]
fn decoding_validates() {
    let map = TensorMap { address: 8, ..good() };
    assert!(TensorMap::from_bytes(&map.to_bytes()).unwrap_err().message.contains("multiple of 16"));
}
