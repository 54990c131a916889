-- Counts what an account uses towards its quotas, in the step that counts it, and notes each quota that is reached; tells
-- before that step which hard ones are used up. And counts it for /metrics, of so many accounts as monitoring can bear.
-- KEYS[6] remuda:quota.events
-- ARGV[17] quotas, template of a key, like the next
-- ARGV[18] quota_use
-- ARGV[19] totals

local DAY, MOST_EVENTS = 86400000, 10000

-- When the month of a moment began. Years begin in March, so that the leap day comes last.
local function month_start(moment)
  local days = math.floor(moment / DAY)
  local of_era = (days + 719468) % 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
    - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153)
  return (days - (of_year - math.floor((153 * month + 2) / 5))) * DAY
end

local function period_of(period, slot)
  if period == 'day' then
    return slot - slot % DAY, slot - slot % DAY + DAY
  elseif period == 'month' then
    local start = month_start(slot)
    return start, month_start(start + 32 * DAY)
  end
  return 0, 0
end

local function count_quota(account, name, quota, slot, by)
  local hard, soft, period = quota:match('^(%S+) (%S+) (%S+)$')
  local since, until_ = period_of(period, slot)
  local key = ARGV[18]:format(account)
  local known = redis.call('HMGET', key, name, name .. '.since')
  local known_since = tonumber(known[2] or -1)
  if since < known_since then
    return -- It came late: that period is over.
  end
  local before = since == known_since and tonumber(known[1]) or 0
  local used = before + by
  redis.call('HSET', key, name, ('%.0f'):format(used),
    name .. '.since', ('%.0f'):format(since), name .. '.until', ('%.0f'):format(until_))
  for _, kind in ipairs({{'soft', tonumber(soft)}, {'hard', tonumber(hard)}}) do
    local limit = kind[2]
    if limit and before < limit and used >= limit then
      -- What is stored may reach a limit again, and a limit may be changed: that is another event than the last one.
      local id = ('%s/%s/%s/%d%06d'):format(account, name, kind[1], unpack(redis.call('TIME')))
      redis.call('RPUSH', KEYS[6], ('{"id":"%s","account":"%s","quota":"%s","kind":"%s","limit":%.0f,'
        .. '"used":%.0f,"period":"%s","until":%.0f}'):format(id, account, name, kind[1], limit, used, period, until_))
      redis.call('LTRIM', KEYS[6], -MOST_EVENTS, -1)
    end
  end
end

-- The quotas of an account, by name; read once for a batch.
local quotas_by_account = {}
local function quotas_of(account)
  local found = quotas_by_account[account]
  if not found then
    found = {}
    local stored = redis.call('HGETALL', ARGV[17]:format(account))
    for index = 1, #stored, 2 do
      found[stored[index]] = stored[index + 1]
    end
    quotas_by_account[account] = found
  end
  return found
end

local function count_quotas(account, service, slot, counts, moves)
  local quotas = quotas_of(account)
  if not next(quotas) then
    return
  end
  for _, changes in ipairs({counts, moves}) do
    for place = 1, #changes, 2 do
      local name = service .. '.' .. changes[place]
      if quotas[name] then
        count_quota(account, name, quotas[name], slot, changes[place + 1])
      end
    end
  end
end

-- Each hard quota that is used up, of those that are to be added to: its account and name, its limit, what is used, its
-- period and when that ends.
local function spent_quotas(guarded, now_ms)
  local spent = {}
  for _, guard in ipairs(guarded) do
    local account, service, gains = unpack(guard)
    local quotas = quotas_of(account)
    for index = 1, next(quotas) and #gains or 0 do
      local name = service .. '.' .. gains[index]
      local hard, period = (quotas[name] or ''):match('^(%d+) %S+ (%S+)$')
      if hard then
        local use = redis.call('HMGET', ARGV[18]:format(account), name, name .. '.until')
        local used, ends = tonumber(use[1] or 0), tonumber(use[2] or 0)
        if used >= tonumber(hard) and (period == 'now' or ends > now_ms) then
          spent[#spent + 1] = {account, name, tonumber(hard), used, period, ends}
        end
      end
    end
  end
  return spent
end

local MOST_TOTALS = 900

local function count_totals(account, service, counts)
  local key = ARGV[19]:format(service)
  for place = 1, #counts, 2 do
    local measure, by = counts[place], counts[place + 1]
    local field = account .. ' ' .. measure
    -- A field that is new and one too many is taken back: that is rarer than one that is there already.
    local is_new = redis.call('HINCRBY', key, field, by) == tonumber(by)
    if is_new and redis.call('HLEN', key) > MOST_TOTALS then
      redis.call('HDEL', key, field)
      redis.call('HINCRBY', key, ' ' .. measure, by)
    end
  end
end
