#pragma once

#include "rapt/attention.h"
#include "rapt/cache.h"
#include "rapt/context.h"
#include "rapt/longformer.h"
#include "rapt/lsh.h"
#include "rapt/machine.h"
#include "rapt/pattern.h"
#include "rapt/plan.h"
#include "rapt/positions.h"
#include "rapt/rope.h"
#include "rapt/tensor.h"
#include "rapt/type.h"
