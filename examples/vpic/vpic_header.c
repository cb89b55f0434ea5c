/*
 * Packing and unpacking of the VPIC dump header; see vpic_header.h.
 *
 * One walk over the fields serves both directions: what is packed is what is unpacked, in the same order.
 */
#include "vpic_header.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#define DUMP_VERSION 0
#define DUMP_TYPE_PARTICLES 3
#define RECORD_DIMENSIONS 1

const unsigned char vpic_header_field_bytes[VPIC_HEADER_FIELDS] = {
    1, 1, 1, 1, 1, 2, 4, 4, 8,                            /* sizes of types, byte-order marks */
    4, 4, 4, 4, 4, 4,                                     /* version, type, step, nx, ny, nz */
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4,                         /* dt, dx, dy, dz, x0, y0, z0, cvac, eps0, damp */
    4, 4, 4, 4,                                           /* rank, ranks, species, charge per mass */
    4, 4, 4,                                              /* element size, dimensions, count */
};

/* The constants that open every header. */
struct preamble {
    unsigned char char_bits, short_bytes, int_bytes, float_bytes, double_bytes;
    uint16_t cafe;
    uint32_t deadbeef;
    float one;
    double wide_one;
    int32_t version, type, dimensions;
};

/* VPIC gives the size of a char in bits and those of the others in bytes. */
static const struct preamble EXPECTED = {CHAR_BIT, sizeof(short), sizeof(int), sizeof(float), sizeof(double),
                                         0xcafe, 0xdeadbeef, 1.0f, 1.0, DUMP_VERSION, DUMP_TYPE_PARTICLES,
                                         RECORD_DIMENSIONS};

/* The addresses of all fields in the order of the file. */
static void list_fields(struct preamble *preamble, struct vpic_header *header, void *fields[VPIC_HEADER_FIELDS])
{
    void *const listed[] = {
        &preamble->char_bits, &preamble->short_bytes, &preamble->int_bytes, &preamble->float_bytes,
        &preamble->double_bytes, &preamble->cafe, &preamble->deadbeef, &preamble->one, &preamble->wide_one,
        &preamble->version, &preamble->type, &header->step, &header->nx, &header->ny, &header->nz,
        &header->dt, &header->dx, &header->dy, &header->dz, &header->x0, &header->y0, &header->z0,
        &header->light_speed, &header->permittivity, &header->damping,
        &header->rank, &header->ranks, &header->species, &header->charge_per_mass,
        &header->element_bytes, &preamble->dimensions, &header->count,
    };
    static_assert(sizeof listed / sizeof listed[0] == VPIC_HEADER_FIELDS, "every field is listed once");
    memcpy(fields, listed, sizeof listed);
}

void vpic_header_pack(const struct vpic_header *header, unsigned char packed[VPIC_HEADER_BYTES])
{
    struct preamble preamble = EXPECTED;
    struct vpic_header copy = *header;
    void *fields[VPIC_HEADER_FIELDS];
    list_fields(&preamble, &copy, fields);
    for (int field = 0; field < VPIC_HEADER_FIELDS; field++) {
        memcpy(packed, fields[field], vpic_header_field_bytes[field]);
        packed += vpic_header_field_bytes[field];
    }
}

int vpic_header_unpack(const unsigned char packed[VPIC_HEADER_BYTES], struct vpic_header *header)
{
    struct preamble preamble;
    void *fields[VPIC_HEADER_FIELDS];
    list_fields(&preamble, header, fields);
    for (int field = 0; field < VPIC_HEADER_FIELDS; field++) {
        memcpy(fields[field], packed, vpic_header_field_bytes[field]);
        packed += vpic_header_field_bytes[field];
    }
    int known = preamble.char_bits == EXPECTED.char_bits && preamble.short_bytes == EXPECTED.short_bytes &&
                preamble.int_bytes == EXPECTED.int_bytes && preamble.float_bytes == EXPECTED.float_bytes &&
                preamble.double_bytes == EXPECTED.double_bytes && preamble.cafe == EXPECTED.cafe &&
                preamble.deadbeef == EXPECTED.deadbeef && preamble.one == EXPECTED.one &&
                preamble.wide_one == EXPECTED.wide_one && preamble.version == EXPECTED.version &&
                preamble.type == EXPECTED.type && preamble.dimensions == EXPECTED.dimensions;
    return known && header->element_bytes > 0 && header->count >= 0 ? 0 : -1;
}
