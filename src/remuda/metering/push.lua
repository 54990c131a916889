-- Counts a batch of events, all or none of them: if one was counted before, only that is noted.
-- KEYS[1] remuda:metering:closed
-- KEYS[2] remuda:metering:late
-- KEYS[3] remuda:metrics:metering
-- KEYS[4] remuda:metering:deleted
-- KEYS[5] remuda:metering:ahead
-- ARGV[1] seen, template of a key, like the next nine
-- ARGV[2] usage
-- ARGV[3] state
-- ARGV[4] counter
-- ARGV[5] location
-- ARGV[6] active
-- ARGV[7] late
-- ARGV[8] resources
-- ARGV[9] owners
-- ARGV[10] channel
-- ARGV[11] remember, seconds for which the id of an event is known at least
-- ARGV[12] precision, milliseconds of a time slot
-- ARGV[13] keep, seconds for which single keys stay after their time slot is rolled up
-- ARGV[14] slots, template of a key, like the next
-- ARGV[15] days
-- ARGV[16] batch, MessagePack: shard and number of each event's id; changes of {service, time slot, {operation or
--   measure, by how much, ...}, {state, by how much, ...}, {level, resource, account, ...}}; {service, bucket,
--   message, ...}; {bucket to be forgotten, ...}; {account, service, {what is added to, ...}} whose hard quotas must
--   not be used up
-- returns the places of events that were counted before, from 0; if there is none, the keys that could not be changed
--   because they hold something else; and the hard quotas that are used up: then nothing was counted, either

local USAGE, STATE, LATE = ARGV[2], ARGV[3], ARGV[7]
local SLOTS, DAYS = ARGV[14], ARGV[15]
local DAY_MS, PACKED = 86400000, '\193'
-- The name of a counter is that of its state, and this.
local COUNTER_TAIL = ARGV[4]:sub(#STATE + 1)
local POINT = '%.0f:%s'
local ids, changes, messages, deleted, guarded = unpack(cmsgpack.unpack(ARGV[16]))
local now = tonumber(redis.call('TIME')[1])
local remember = tonumber(ARGV[11])

-- Each id belongs to the period in which it came. Two periods are looked at, so none is forgotten too early.
local period = now - now % remember
local this_period = ('%.0f'):format(period * 1000)
local last_period = ('%.0f'):format((period - remember) * 1000)
local repeated, added = {}, {}
for index = 1, #ids, 2 do
  local shard, id = ids[index], ids[index + 1]
  local seen = ARGV[1]:format(this_period, shard)
  if redis.call('SADD', seen, id) == 0 then
    repeated[#repeated + 1] = (index - 1) / 2
  elseif redis.call('SISMEMBER', ARGV[1]:format(last_period, shard), id) == 1 then
    redis.call('SREM', seen, id)
    repeated[#repeated + 1] = (index - 1) / 2
  else
    added[#added + 1] = index
    redis.call('EXPIRE', seen, period + 2 * remember - now)
  end
end
local spent = #repeated == 0 and spent_quotas(guarded, now * 1000) or {}
if #repeated + #spent > 0 then
  for _, index in ipairs(added) do
    redis.call('SREM', ARGV[1]:format(this_period, ids[index]), ids[index + 1])
  end
  redis.call('HINCRBY', KEYS[3], 'duplicates', #repeated)
  return {repeated, {}, spent}
end

local precision = tonumber(ARGV[12])
local current = now * 1000 - now * 1000 % precision
local closed, ahead = unpack(redis.call('MGET', KEYS[1], KEYS[5]))
closed, ahead = tonumber(closed or nil), tonumber(ahead or 0)
local newest_slot = 0
for _, change in ipairs(changes) do
  newest_slot = math.max(newest_slot, change[2])
end
if newest_slot > math.max(current, ahead) then
  redis.call('SET', KEYS[5], ('%.0f'):format(newest_slot))
  ahead = newest_slot
end
if not closed then
  -- A day before the first event: older ones may follow. But not long ago: each time slot since is looked at.
  closed = current
  for _, change in ipairs(changes) do
    closed = math.min(closed, change[2])
  end
  closed = math.max(closed, current - 30 * DAY_MS) - DAY_MS
  redis.call('SET', KEYS[1], ('%.0f'):format(closed))
end

-- A key that holds something else must not undo half of a batch: it is told, and the rest is counted.
local failed = {}
local pcall = redis.pcall
local function increase(key, by)
  local total = pcall('INCRBY', key, by)
  if type(total) == 'number' then
    return total
  end
  failed[#failed + 1] = key
end

local function value_of(member)
  return member and tonumber(member:match('^%-?%d+')) or 0
end

-- How much of something a closed time slot of a resource has in its rolled-up day; nil where that is not known here.
local function rolled_up(service, level, resource, slot, name)
  if slot > (now - ARGV[13]) * 1000 then
    return 0 -- Its single key would still be there.
  end
  local day = ('%.0f'):format(math.floor(slot / DAY_MS))
  local blob = redis.call('HGET', SLOTS:format(service, level, resource), day)
  if not blob then
    return 0
  elseif blob:sub(1, 1) == PACKED then
    -- Scripts cannot unpack it, but its sums tell what it does not have at all.
    local totals = redis.call('HGET', DAYS:format(service, level, resource), day)
    return not (totals and cmsgpack.unpack(totals)[name]) and 0 or nil
  end
  local column = cmsgpack.unpack(blob)[name] or {}
  local width = DAY_MS / math.max(1, #column)
  local first, sum = slot % DAY_MS / width, 0
  for place = math.ceil(first), math.ceil(first + precision / width) - 1 do
    sum = sum + (column[place + 1] or 0)
  end
  return sum
end

-- Counts in a time slot that is closed: apart, until its day is rewritten, and in the single key, as Utapi reads it.
local function count_late(late, key, service, level, resource, slot, slot_text, name, by)
  local pending = redis.call('HINCRBY', late, slot_text .. ':' .. name, by)
  if redis.call('EXISTS', key) == 1 then
    increase(key, by)
    return
  end
  local before = rolled_up(service, level, resource, slot, name)
  if before then
    redis.call('SET', key, ('%.0f'):format(before + pending), 'EX', ARGV[13])
  end
end

-- Adds to the points of a series from a time slot on: later ones have been recorded already.
local function shift(key, days, slot, slot_text, by)
  local points = redis.call('ZRANGE', key, slot_text, '+inf', 'BYSCORE', 'WITHSCORES')
  for index = 1, #points, 2 do
    local at = ('%.0f'):format(points[index + 1])
    redis.call('ZREM', key, points[index])
    redis.call('ZADD', key, at, POINT:format(value_of(points[index]) + by, at))
  end
  if tonumber(points[2]) ~= slot then
    local before = redis.call('ZRANGE', key, '(' .. slot_text, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1)
    -- What was before the first point of a series that is rolled up is known there only. Before one that is not
    -- there was nothing.
    if before[1] or slot >= closed or tonumber(points[2] or 0) >= closed or redis.call('EXISTS', days) == 0 then
      redis.call('ZADD', key, slot_text, POINT:format(value_of(before[1]) + by, slot_text))
    end
  end
end

-- Records the state of a time slot; whether it is the first of that time slot.
local function record(key, days, slot, slot_text, total, by)
  -- From the present time slot on, no point can be later, unless a fast clock has written one.
  if slot < current or slot < ahead then
    local newest = pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
    if tonumber(newest[2] or 0) > slot then
      shift(key, days, slot, slot_text, tonumber(by))
      return false
    end
  end
  local replaced = pcall('ZREMRANGEBYSCORE', key, slot_text, slot_text)
  if type(replaced) ~= 'number' then
    failed[#failed + 1] = key
    return false
  end
  pcall('ZADD', key, slot_text, POINT:format(total, slot_text))
  return replaced == 0
end

-- Counts a change for one resource. What is added comes as text: a call takes long to write a number.
local came_late = 0
local function count(service, slot, slot_text, counts, moves, level, resource, account)
  local is_late = slot < closed
  local late = is_late and LATE:format(service, level, resource)
  local is_new = slot < current
  local usage = USAGE:format(service, level, slot_text, resource, '')
  for index = 1, #counts, 2 do
    local key, by = usage .. counts[index], counts[index + 1]
    if not is_late then
      local total = increase(key, by)
      is_new = is_new or total == tonumber(by)
    else
      count_late(late, key, service, level, resource, slot, slot_text, counts[index], by)
    end
  end
  local states = #moves > 0 and STATE:format(service, level, resource, '')
  local days = #moves > 0 and slot < current and DAYS:format(service, level, resource)
  for index = 1, #moves, 2 do
    local by, state = moves[index + 1], states .. moves[index]
    if is_late and by ~= '0' then
      redis.call('HINCRBY', late, slot_text .. ':' .. moves[index], by)
    end
    local total = increase(state .. COUNTER_TAIL, by)
    if level == 'location' and moves[index] == 'storageUtilized' then
      increase(ARGV[5]:format(service, resource), by)
    end
    if total and record(state, days, slot, slot_text, total, by) then
      is_new = true
    end
  end
  if is_late then
    came_late = came_late + 1
    redis.call('SADD', KEYS[2], service .. ':' .. level .. ':' .. resource)
  elseif is_new then
    redis.call('SADD', ARGV[6]:format(service, level, slot_text), resource)
  end
  if is_new then
    redis.call('ZADD', ARGV[8]:format(service, level), 'GT', slot_text, resource)
    if account ~= '' then
      redis.call('HSETNX', ARGV[9]:format(service, level), resource, account)
    end
  end
end

for _, change in ipairs(changes) do
  local service, slot, counts, moves, targets = unpack(change)
  local slot_text = ('%.0f'):format(slot)
  for target = 1, #targets, 3 do
    local level, resource, account = targets[target], targets[target + 1], targets[target + 2]
    count(service, slot, slot_text, counts, moves, level, resource, account)
    if level == 'accounts' then
      -- Of a client whose clock is ahead, too: its event must not begin the next period before its time.
      count_quotas(resource, service, math.min(slot, current), counts, moves)
      count_totals(resource, service, counts)
    end
  end
end

for index = 1, #messages, 3 do
  redis.call('PUBLISH', ARGV[10]:format(messages[index], messages[index + 1]), messages[index + 2])
end
for _, bucket in ipairs(deleted) do
  redis.call('ZADD', KEYS[4], now, bucket)
end
redis.call('HINCRBY', KEYS[3], 'accepted', #ids / 2)
if came_late > 0 then
  redis.call('HINCRBY', KEYS[3], 'late', came_late)
end
if #failed > 0 then
  redis.call('HINCRBY', KEYS[3], 'failed', #failed)
end
return {{}, failed, {}}
