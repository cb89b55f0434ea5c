/*
 * The 115-byte header of a VPIC particle dump, as the examples write and read it.
 *
 * Format: VPIC's dump_particles, little-endian and packed: 32 fields, of which VPIC writes each with an fwrite of its
 * own. Programs that write the header take it field by field from the packed bytes, so that all ways of writing agree.
 *
 * Invariant: the field sizes sum up to VPIC_HEADER_BYTES.
 */
#ifndef VPIC_HEADER_H
#define VPIC_HEADER_H

#include <stdint.h>

#define VPIC_HEADER_BYTES 115
#define VPIC_HEADER_FIELDS 32

/* Fields that differ from dump to dump; the sizes of C's types, the byte-order marks and the versions are constants. */
struct vpic_header {
    int32_t step;
    int32_t nx, ny, nz;     /* cells of the rank's grid, without ghosts */
    float dt;               /* timestep */
    float dx, dy, dz;       /* size of a cell */
    float x0, y0, z0;       /* low corner of the rank's grid */
    float light_speed, permittivity, damping;
    int32_t rank, ranks;
    int32_t species;
    float charge_per_mass;
    int32_t element_bytes;  /* bytes of a record */
    int32_t count;          /* records that follow */
};

/* Bytes of each field, in the order of the file. */
extern const unsigned char vpic_header_field_bytes[VPIC_HEADER_FIELDS];

/* Packs the header as it stands in the file. */
void vpic_header_pack(const struct vpic_header *header, unsigned char packed[VPIC_HEADER_BYTES]);

/* Takes a header apart; -1 if the bytes are not the header of a particle dump of this machine's byte order. */
int vpic_header_unpack(const unsigned char packed[VPIC_HEADER_BYTES], struct vpic_header *header);

#endif
