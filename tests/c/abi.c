/* Prints what turbidite.h looks like to a compiler: the version, every constant, and the size and place of every struct
 * and field. test_c.py compares it with the table of that version; a difference needs a new TURBIDITE_ABI_VERSION. */
#include <stddef.h>
#include <stdio.h>

#include "turbidite.h"

#define CONSTANT(name) printf("%s %d\n", #name, (int)(name))
#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field))

static void constants(void) {
    CONSTANT(TURBIDITE_ABI_VERSION);
    CONSTANT(TURBIDITE_OK);
    CONSTANT(TURBIDITE_FAILED);
    CONSTANT(TURBIDITE_USAGE);
    CONSTANT(TURBIDITE_CORRUPTION);
    CONSTANT(TURBIDITE_SKIPPED);
    CONSTANT(TURBIDITE_F32);
    CONSTANT(TURBIDITE_F64);
    CONSTANT(TURBIDITE_I32);
    CONSTANT(TURBIDITE_I64);
    CONSTANT(TURBIDITE_U32);
    CONSTANT(TURBIDITE_U64);
    CONSTANT(TURBIDITE_I8);
    CONSTANT(TURBIDITE_I16);
    CONSTANT(TURBIDITE_U8);
    CONSTANT(TURBIDITE_U16);
    CONSTANT(TURBIDITE_BYTES);
    CONSTANT(TURBIDITE_IF_EXISTS_ERROR);
    CONSTANT(TURBIDITE_IF_EXISTS_REPLACE);
    CONSTANT(TURBIDITE_IF_EXISTS_SKIP);
    CONSTANT(TURBIDITE_CONTROL);
    CONSTANT(TURBIDITE_DATA);
    CONSTANT(TURBIDITE_OUTWARD);
    CONSTANT(TURBIDITE_ACROSS);
    CONSTANT(TURBIDITE_SENT);
    CONSTANT(TURBIDITE_PENDING);
    CONSTANT(TURBIDITE_NO_CREDIT);
}

static void what_is_handed_over(void) {
    STRUCT(turbidite_status);
    STRUCT(turbidite_column);
    FIELD(turbidite_column, name);
    FIELD(turbidite_column, type);
    FIELD(turbidite_column, width);
    FIELD(turbidite_column, unit);
    STRUCT(turbidite_view);
    FIELD(turbidite_view, data);
    FIELD(turbidite_view, stride);
    FIELD(turbidite_view, type);
    FIELD(turbidite_view, width);
    STRUCT(turbidite_options);
    FIELD(turbidite_options, struct_size);
    FIELD(turbidite_options, if_exists);
    FIELD(turbidite_options, break_lock);
    FIELD(turbidite_options, receivers);
    FIELD(turbidite_options, pivots);
    FIELD(turbidite_options, patience_ms);
    FIELD(turbidite_options, stall_s);
    FIELD(turbidite_options, levels);
    FIELD(turbidite_options, renegotiate);
    FIELD(turbidite_options, memtable_bytes);
    FIELD(turbidite_options, source);
    FIELD(turbidite_options, period);
    FIELD(turbidite_options, level_weight);
}

static void what_comes_back(void) {
    STRUCT(turbidite_epoch_metrics);
    FIELD(turbidite_epoch_metrics, struct_size);
    FIELD(turbidite_epoch_metrics, ranks);
    FIELD(turbidite_epoch_metrics, rows);
    FIELD(turbidite_epoch_metrics, strays);
    FIELD(turbidite_epoch_metrics, spills);
    FIELD(turbidite_epoch_metrics, nan_keys);
    FIELD(turbidite_epoch_metrics, renegotiations);
    FIELD(turbidite_epoch_metrics, messages);
    FIELD(turbidite_epoch_metrics, bytes_written);
    FIELD(turbidite_epoch_metrics, load_imbalance);
    FIELD(turbidite_epoch_metrics, wall_s);
    FIELD(turbidite_epoch_metrics, recipients);
    FIELD(turbidite_epoch_metrics, senders);
    FIELD(turbidite_epoch_metrics, forwarded);
    FIELD(turbidite_epoch_metrics, open_batch_bytes);
    FIELD(turbidite_epoch_metrics, batch_bytes);
    STRUCT(turbidite_request);
    FIELD(turbidite_request, struct_size);
    FIELD(turbidite_request, ordered);
    FIELD(turbidite_request, where);
    FIELD(turbidite_request, columns);
    FIELD(turbidite_request, column_count);
    FIELD(turbidite_request, epochs);
    FIELD(turbidite_request, limit);
    FIELD(turbidite_request, box);
    FIELD(turbidite_request, period);
    FIELD(turbidite_request, share);
    FIELD(turbidite_request, shares);
    FIELD(turbidite_request, order_by);
}

static void trajectories(void) {
    STRUCT(turbidite_get_request);
    FIELD(turbidite_get_request, struct_size);
    FIELD(turbidite_get_request, threads);
    FIELD(turbidite_get_request, id);
    FIELD(turbidite_get_request, ids);
    FIELD(turbidite_get_request, view_count);
    FIELD(turbidite_get_request, id_count);
    FIELD(turbidite_get_request, columns);
    FIELD(turbidite_get_request, column_count);
    FIELD(turbidite_get_request, epochs);
    FIELD(turbidite_get_request, limit);
    FIELD(turbidite_get_request, use);
    FIELD(turbidite_get_request, scratch);
    STRUCT(turbidite_track_request);
    FIELD(turbidite_track_request, struct_size);
    FIELD(turbidite_track_request, threads);
    FIELD(turbidite_track_request, id);
    FIELD(turbidite_track_request, ids);
    FIELD(turbidite_track_request, view_count);
    FIELD(turbidite_track_request, id_count);
    FIELD(turbidite_track_request, columns);
    FIELD(turbidite_track_request, column_count);
    FIELD(turbidite_track_request, epochs);
    FIELD(turbidite_track_request, limit);
    FIELD(turbidite_track_request, use);
    FIELD(turbidite_track_request, scratch);
    FIELD(turbidite_track_request, of);
    FIELD(turbidite_track_request, at);
    FIELD(turbidite_track_request, box);
    FIELD(turbidite_track_request, period);
    STRUCT(turbidite_track_metrics);
    FIELD(turbidite_track_metrics, struct_size);
    FIELD(turbidite_track_metrics, epochs);
    FIELD(turbidite_track_metrics, ids);
    FIELD(turbidite_track_metrics, rows);
    FIELD(turbidite_track_metrics, incomplete_ids);
    FIELD(turbidite_track_metrics, absent_ids);
    FIELD(turbidite_track_metrics, missing);
    FIELD(turbidite_track_metrics, duplicates);
    FIELD(turbidite_track_metrics, bytes_read);
}

static void histograms(void) {
    STRUCT(turbidite_bins);
    FIELD(turbidite_bins, struct_size);
    FIELD(turbidite_bins, is_log);
    FIELD(turbidite_bins, column);
    FIELD(turbidite_bins, count);
    FIELD(turbidite_bins, low);
    FIELD(turbidite_bins, high);
    FIELD(turbidite_bins, edges);
    FIELD(turbidite_bins, errors);
    FIELD(turbidite_bins, level);
    FIELD(turbidite_bins, reserved);
    FIELD(turbidite_bins, budget_bytes);
    STRUCT(turbidite_histogram_metrics);
    FIELD(turbidite_histogram_metrics, struct_size);
    FIELD(turbidite_histogram_metrics, epochs);
    FIELD(turbidite_histogram_metrics, rows);
    FIELD(turbidite_histogram_metrics, nan);
    FIELD(turbidite_histogram_metrics, infinite);
    FIELD(turbidite_histogram_metrics, outside);
    FIELD(turbidite_histogram_metrics, bins);
    FIELD(turbidite_histogram_metrics, bytes_read);
}

static void cursors(void) {
    STRUCT(turbidite_batch);
    FIELD(turbidite_batch, struct_size);
    FIELD(turbidite_batch, level);
    FIELD(turbidite_batch, rows);
    FIELD(turbidite_batch, receiver);
    FIELD(turbidite_batch, run);
    FIELD(turbidite_batch, coordinates);
    FIELD(turbidite_batch, reserved);
    FIELD(turbidite_batch, lower);
    FIELD(turbidite_batch, upper);
}

static void transport(void) {
    STRUCT(turbidite_transport);
    FIELD(turbidite_transport, struct_size);
    FIELD(turbidite_transport, abi_version);
    FIELD(turbidite_transport, context);
    FIELD(turbidite_transport, rank);
    FIELD(turbidite_transport, ranks);
    FIELD(turbidite_transport, nodes);
    FIELD(turbidite_transport, send);
    FIELD(turbidite_transport, completed);
    FIELD(turbidite_transport, poll);
    FIELD(turbidite_transport, release);
    FIELD(turbidite_transport, describe);
    FIELD(turbidite_transport, abandon);
}

int main(void) {
    constants();
    what_is_handed_over();
    what_comes_back();
    trajectories();
    histograms();
    cursors();
    transport();
    return 0;
}
