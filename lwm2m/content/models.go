package content

// The types of the resources that are known: those of the objects 0 to 7 and 9 of the enabler, and of the IPSO objects. TLV and text
// say nothing about the type of a value.

// kinds are the types of the resources of one object, by resource.
type kinds map[uint16]Kind

var core = map[uint16]kinds{
	0: {0: String, 1: Boolean, 2: Integer, 3: Bytes, 4: Bytes, 5: Bytes, 6: Integer, 7: Bytes, 8: Bytes, 9: String, 10: Integer, 11: Integer, 12: Integer, 13: Unsigned,
		14: String, 15: Unsigned, 16: Unsigned, 17: Link},
	1: {0: Integer, 1: Integer, 2: Integer, 3: Integer, 5: Integer, 6: Boolean, 7: String, 10: Link, 11: String, 12: String, 13: Unsigned, 14: Unsigned, 15: Boolean,
		16: Boolean, 17: Unsigned, 18: Unsigned, 19: Unsigned, 20: Unsigned, 21: Boolean, 22: String, 23: Boolean},
	2: {0: Integer, 1: Integer, 2: Integer, 3: Integer},
	3: {0: String, 1: String, 2: String, 3: String, 6: Integer, 7: Integer, 8: Integer, 9: Integer, 10: Integer, 11: Integer, 13: Time, 14: String, 15: String, 16: String,
		17: String, 18: String, 19: String, 20: Integer, 21: Integer, 22: Link},
	4: {0: Integer, 1: Integer, 2: Integer, 3: Integer, 4: String, 5: String, 6: Integer, 7: String, 8: Integer, 9: Integer, 10: Integer, 11: Integer, 12: Integer, 13: Integer},
	5: {0: Bytes, 1: String, 3: Integer, 5: Integer, 6: String, 7: String, 8: Integer, 9: Integer, 11: Integer, 12: Time, 13: Unsigned},
	6: {0: Float, 1: Float, 2: Float, 3: Float, 4: Bytes, 5: Time, 6: Float},
	7: {0: Integer, 1: Integer, 2: Integer, 3: Integer, 4: Integer, 5: Integer, 8: Integer},
	9: {0: String, 1: String, 2: Bytes, 3: String, 5: Link, 7: Integer, 8: Boolean, 9: Integer, 12: Boolean, 13: String},
}

// reusable are the types of the resources that the IPSO objects share.
var reusable = kinds{
	5500: Boolean, 5501: Integer, 5502: Boolean, 5503: Float, 5504: Boolean, 5505: None, 5506: Time, 5507: Float, 5508: Float, 5509: Float, 5510: Float, 5511: String, 5512: None,
	5513: String, 5514: String, 5515: String, 5516: String, 5517: Bytes, 5518: Time, 5519: Float, 5520: Float, 5521: Float, 5522: Bytes, 5523: None, 5524: Float,
	5525: Float, 5526: Integer, 5527: String, 5528: Float, 5529: Float, 5530: None, 5531: Float, 5532: Boolean, 5533: Boolean, 5534: Integer, 5535: None, 5536: Float,
	5537: Float, 5538: Float, 5539: Float, 5540: Float, 5541: Integer, 5542: None, 5543: Boolean, 5544: Float, 5545: Integer, 5546: Integer, 5547: Integer, 5548: Float,
	5549: Integer, 5550: Boolean, 5551: Float, 5552: Float, 5553: Float, 5554: Boolean,
	5601: Float, 5602: Float, 5603: Float, 5604: Float, 5605: None,
	5700: Float, 5701: String, 5702: Float, 5703: Float, 5704: Float, 5705: Float, 5706: String, 5707: Float, 5708: Float, 5709: Float,
	5750: String, 5800: Float, 5801: Float, 5802: Float, 5803: Float, 5804: Float, 5805: Float, 5806: Float, 5807: Float, 5808: Float, 5809: Float, 5810: Float, 5811: Float,
	5812: Float, 5813: Float, 5814: Float, 5815: Float, 5816: Float, 5817: Float, 5818: Float, 5819: Float, 5820: Float, 5821: Float, 5822: None, 5823: String, 5824: Time,
	5825: Integer, 5826: Integer, 5850: Boolean, 5851: Integer, 5852: Integer, 5853: String, 5854: Float, 5900: Float, 5910: Integer, 5911: None, 5912: String,
	6042: Integer, 6050: Float, 6051: Float, 6052: Float, 6053: Float,
}

// KindOf returns the type of the resource at a path, None for one that is not known.
func KindOf(p Path) Kind {
	if len(p) < 3 {
		return None
	}
	if of, ok := core[p[0]]; ok {
		return of[p[2]]
	}
	if p[0] >= 3200 && p[0] <= 3441 {
		return reusable[p[2]]
	}
	return None
}

// Multiple reports whether a resource has instances: those of the enabler's objects that are known to.
func Multiple(p Path) bool {
	if len(p) < 3 {
		return false
	}
	switch [2]uint16{p[0], p[2]} {
	case [2]uint16{2, 2}, [2]uint16{3, 6}, [2]uint16{3, 7}, [2]uint16{3, 8}, [2]uint16{3, 11}, [2]uint16{3, 22}, [2]uint16{4, 1}, [2]uint16{4, 4}, [2]uint16{4, 5}, [2]uint16{4, 7},
		[2]uint16{5, 8}:
		return true
	}
	return false
}

// Locates reports whether the instances of an object say where a device is: Location (6) and the IPSO object of the same name (3336).
func Locates(object uint16) bool { return object == 6 || object == 3336 }

// Observed reports whether an object is one of those that are observed without being asked for: the IPSO objects.
func Observed(object uint16) bool { return object >= 3200 && object <= 3441 }
