// The softmax of each row of a matrix, one work-group per row; COLUMNS is the length of a row.
#ifndef COLUMNS
#define COLUMNS 256
#endif
#define GROUP 64

// Return what all work-items of the group get from combining the value of each.
static float of_group(local float *shared, float value, bool maximum) {
  uint me = get_local_id(0);
  shared[me] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    if (me < half_size) {
      float other = shared[me + half_size];
      shared[me] = maximum ? fmax(shared[me], other) : shared[me] + other;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  float result = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return result;
}

__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void softmax(global float *out, global const float *in) {
  local float shared[GROUP];
  global const float *row = in + get_group_id(0) * COLUMNS;
  global float *result = out + get_group_id(0) * COLUMNS;

  float largest = -INFINITY;
  for (uint k = get_local_id(0); k < COLUMNS; k += GROUP) largest = fmax(largest, row[k]);
  largest = of_group(shared, largest, true);

  float sum = 0;
  for (uint k = get_local_id(0); k < COLUMNS; k += GROUP) sum += exp(row[k] - largest);
  sum = of_group(shared, sum, false);

  for (uint k = get_local_id(0); k < COLUMNS; k += GROUP) result[k] = exp(row[k] - largest) / sum;
}
