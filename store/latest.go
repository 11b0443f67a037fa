package store

import (
	"database/sql"
	"math"
	"slices"
	"strings"

	"weir/model"
)

// LatestMeasurement is the newest measurement of a series by event time. ID is the series' row id.
type LatestMeasurement struct {
	ID            int64
	Device        int64
	DeviceToken   string
	Metric        string
	Value         float64
	Classifier    int32
	HasClassifier bool
	Unit          string
	DataType      string
	Mark          model.RangeMark
	Occurred      model.Micros
	Created       model.Micros // receive time of the first reading of the series
	Updated       model.Micros // receive time of this one
}

// PutLatestMeasurement replaces the latest value of a series when m is strictly newer.
func PutLatestMeasurement(tx Tx, m *LatestMeasurement) error {
	_, err := tx.Exec(`INSERT INTO latest_measurements (series, value, classifier, unit, data_type, range_mark, occurred_at, created_at,
		updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (series) DO UPDATE SET value = excluded.value, classifier = excluded.classifier, unit = excluded.unit,
		data_type = excluded.data_type, range_mark = excluded.range_mark, occurred_at = excluded.occurred_at, updated_at = excluded.updated_at
		WHERE excluded.occurred_at > latest_measurements.occurred_at`,
		m.ID, m.Value, sql.NullInt64{Int64: int64(m.Classifier), Valid: m.HasClassifier}, m.Unit, m.DataType, int64(m.Mark),
		int64(m.Occurred), int64(m.Created), int64(m.Updated))
	return err
}

// LatestMeasurements returns the latest value of each series of some devices, by the row id of the device and by metric.
func LatestMeasurements(tx Tx, devices ...int64) (map[int64][]LatestMeasurement, error) {
	found := make(map[int64][]LatestMeasurement, len(devices))
	for part := range slices.Chunk(devices, maxIn) {
		if err := addLatestMeasurements(tx, found, Padded(len(part), func(i int) any { return part[i] })); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func addLatestMeasurements(tx Tx, found map[int64][]LatestMeasurement, ids []any) error {
	rows, err := tx.Query(`SELECT s.id, s.device_id, s.device_token, s.metric, l.value, l.classifier, l.unit, l.data_type, l.range_mark,
		l.occurred_at, l.created_at, l.updated_at FROM series s JOIN latest_measurements l ON l.series = s.id
		WHERE s.device_id IN (?`+strings.Repeat(", ?", len(ids)-1)+`) ORDER BY s.device_id, s.metric`, ids...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var m LatestMeasurement
		var classifier sql.NullInt64
		if err := rows.Scan(&m.ID, &m.Device, &m.DeviceToken, &m.Metric, &m.Value, &classifier, &m.Unit, &m.DataType,
			&m.Mark, (*int64)(&m.Occurred), (*int64)(&m.Created), (*int64)(&m.Updated)); err != nil {
			return err
		}
		m.Classifier, m.HasClassifier = int32(classifier.Int64), classifier.Valid
		found[m.Device] = append(found[m.Device], m)
	}
	return rows.Err()
}

// LatestLocation is the newest position of a device by event time. Absent coordinates are NaN.
type LatestLocation struct {
	Device      int64
	TenantID    int64
	DeviceToken string
	Location    model.Location // its Time is not used
	Occurred    model.Micros
	Created     model.Micros // receive time of the device's first position
	Updated     model.Micros // receive time of this one
}

// PutLatestLocation replaces the latest position of a device when l is strictly newer.
func PutLatestLocation(tx Tx, l *LatestLocation) error {
	p := &l.Location
	_, err := tx.Exec(`INSERT INTO latest_locations (device_id, tenant_id, device_token, latitude, longitude, elevation, accuracy, speed, heading,
		occurred_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (device_id) DO UPDATE SET latitude = excluded.latitude, longitude = excluded.longitude, elevation = excluded.elevation,
		accuracy = excluded.accuracy, speed = excluded.speed, heading = excluded.heading, occurred_at = excluded.occurred_at,
		updated_at = excluded.updated_at WHERE excluded.occurred_at > latest_locations.occurred_at`,
		l.Device, l.TenantID, l.DeviceToken, degrees(p.Latitude), degrees(p.Longitude), metres(p.Elevation), metres(p.Accuracy),
		metres(p.Speed), metres(p.Heading), int64(l.Occurred), int64(l.Created), int64(l.Updated))
	return err
}

// LatestLocations returns the newest positions of devices, in no order; devices without one are left out.
func LatestLocations(tx Tx, devices []int64) ([]LatestLocation, error) {
	var out []LatestLocation
	for part := range slices.Chunk(devices, maxIn) {
		var err error
		if out, err = appendLatestLocations(out, tx, Padded(len(part), func(i int) any { return part[i] })); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func appendLatestLocations(out []LatestLocation, tx Tx, ids []any) ([]LatestLocation, error) {
	rows, err := tx.Query(`SELECT device_id, tenant_id, device_token, latitude, longitude, elevation, accuracy, speed, heading, occurred_at,
		created_at, updated_at FROM latest_locations WHERE device_id IN (?`+strings.Repeat(", ?", len(ids)-1)+`)`, ids...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l LatestLocation
		var c coordinates
		if err := rows.Scan(&l.Device, &l.TenantID, &l.DeviceToken, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5],
			(*int64)(&l.Occurred), (*int64)(&l.Created), (*int64)(&l.Updated)); err != nil {
			return nil, err
		}
		l.Location = c.location()
		out = append(out, l)
	}
	return out, rows.Err()
}

// DeleteLatest removes the latest values of a device. Call it in the transaction that deletes the device.
func DeleteLatest(tx Tx, device int64) error {
	if _, err := tx.Exec(`DELETE FROM latest_measurements WHERE series IN (SELECT id FROM series WHERE device_id = ?)`, device); err != nil {
		return err
	}
	_, err := tx.Exec(`DELETE FROM latest_locations WHERE device_id = ?`, device)
	return err
}

// coordinates are the six columns of a position.
type coordinates [6]sql.NullFloat64

func (c *coordinates) location() model.Location {
	at := func(i int) float64 {
		if !c[i].Valid {
			return math.NaN()
		}
		return c[i].Float64
	}
	return model.Location{Latitude: at(0), Longitude: at(1), Elevation: at(2), Accuracy: at(3), Speed: at(4), Heading: at(5)}
}

// degrees and metres round to the stored precision: 8 decimals for latitude and longitude, 4 for the rest.
func degrees(v float64) sql.NullFloat64 { return rounded(v, 1e8) }

func metres(v float64) sql.NullFloat64 { return rounded(v, 1e4) }

func rounded(v, scale float64) sql.NullFloat64 {
	if math.IsNaN(v) {
		return sql.NullFloat64{}
	}
	return sql.NullFloat64{Float64: RoundTo(v, scale), Valid: true}
}

// RoundTo rounds v to a precision, 1/scale. A value too large to have such decimals is kept as it is.
func RoundTo(v, scale float64) float64 {
	scaled := v * scale
	if math.Abs(scaled) >= 1<<53 {
		return v
	}
	return math.RoundToEven(scaled)/scale + 0 // +0: no negative zero
}

// StoredLocation returns l at the precision of the store.
func StoredLocation(l model.Location) model.Location {
	round := func(v *float64, scale float64) {
		if !math.IsNaN(*v) {
			*v = RoundTo(*v, scale)
		}
	}
	round(&l.Latitude, 1e8)
	round(&l.Longitude, 1e8)
	for _, v := range [...]*float64{&l.Elevation, &l.Accuracy, &l.Speed, &l.Heading} {
		round(v, 1e4)
	}
	return l
}
